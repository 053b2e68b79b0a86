//! The binary: all plugins of this repository.

fn main() -> std::process::ExitCode {
    ascribe::main()
}
