use half_outcome as _;

fn main() -> std::process::ExitCode {
    ascribe::main()
}
