fn main() -> std::process::ExitCode { ascribe::main() }
