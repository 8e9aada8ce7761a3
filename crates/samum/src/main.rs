//! The command `samum`.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use config::file::Errors;
use config::{Message, reference};
use logs::say;
use samum::cli::{Cli, Command, Explain, Health, ManPage, Reload, Serve, StackArgs, Upgrade};
use samum::explain::{Question, explain_file};
use samum::upgrade::Origin;
use samum::{cli, control_socket, preload, server};

/// The sentence after the errors of a configuration.
const NOT_USED: &str = "the configuration is not used, because of errors in it";

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return refuse(&error),
    };
    let result = match command {
        Command::Serve(arguments) => serve(arguments),
        Command::Check { file, quiet } => check(&file, quiet),
        Command::ConfigurationReference => print(reference::markdown().as_bytes()),
        Command::Reload(Reload { control }) => {
            let control = control.unwrap_or_else(control_socket::default_path);
            control_socket::ask_for_reload(&control)
                .and_then(|text| print(format!("loaded the configuration {text}\n").as_bytes()))
        }
        Command::Upgrade(Upgrade { control }) => {
            let control = control.unwrap_or_else(control_socket::default_path);
            control_socket::ask_for_upgrade(&control)
                .and_then(|text| print(format!("{text}\n").as_bytes()))
        }
        Command::Health(Health { control }) => {
            let control = control.unwrap_or_else(control_socket::default_path);
            control_socket::ask_for_health(&control).and_then(|text| print(text.as_bytes()))
        }
        Command::Explain(arguments) => explained(arguments),
        Command::Stack(StackArgs { control, connections }) => {
            let control = control.unwrap_or_else(control_socket::default_path);
            control_socket::ask_for_stacks(&control, connections)
                .and_then(|text| print(text.as_bytes()))
        }
        Command::Preload(arguments) => match arguments.check.clone() {
            Some(directory) => {
                let (text, result) = preload::advise(&arguments.preload(), &directory);
                print(text.as_bytes()).and(result)
            }
            None => preload::exec(&arguments.preload()),
        },
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "samum", &mut script);
            print(&script)
        }
        Command::Man { page: ManPage::Samum } => man(),
        Command::Man { page: ManPage::Toml } => print(reference::man().as_bytes()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // An error in a file has several lines of text.
            for line in error.lines() {
                // If standard error is closed, the exit code alone reports the error.
                let _ = io::stderr().write_all(&say::message(line));
            }
            ExitCode::FAILURE
        }
    }
}

/// Prints what a command line was answered with instead of being executed: an error, whose exit code is 2, or a help text.
fn refuse(error: &clap::Error) -> ExitCode {
    let is_error = error.use_stderr();
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match cli::answer(&arguments).filter(|_| is_error) {
        // If standard error is closed, the exit code alone reports the error.
        Some(text) => drop(io::stderr().write_all(&say::message(&text))),
        None => drop(error.print()),
    }
    if is_error { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

/// Serves until a signal stops it, or another process has replaced it.
fn serve(arguments: Box<Serve>) -> Result<(), String> {
    // This comes first: the starter is a copy of a process with one thread and all its rights.
    let origin = Origin::find()?;
    let loaded = arguments.load().map_err(|errors| {
        let all: Vec<_> = errors.0.iter().map(ToString::to_string).collect();
        origin.fail(&all.join("\n"));
        tell(&errors.0, say::lines_of_server);
        NOT_USED.to_owned()
    })?;
    tell(&loaded.warnings, say::lines_of_server);
    if arguments.config.is_none() {
        return server::run(&loaded.config, origin);
    }
    server::run_reloadable(loaded, Box::new(move || arguments.load()), origin)
}

/// Explains what a server would do with a request.
fn explained(arguments: Explain) -> Result<(), String> {
    let Explain { url, method, fields, from, control, config } = arguments;
    let question = Question::new(&method, &url, from, &fields)?;
    let text = match config {
        Some(file) => explain_file(&file, &question).map_err(|errors| explain(&errors))?,
        None => {
            let control = control.unwrap_or_else(control_socket::default_path);
            control_socket::ask_for_explanation(&control, &question)?
        }
    };
    print(text.as_bytes())
}

/// Checks a configuration file, and prints it unless only errors and warnings are wanted.
fn check(file: &Path, is_quiet: bool) -> Result<(), String> {
    let checked = samum::check::check(file).map_err(|errors| explain(&errors))?;
    tell(&checked.warnings, say::lines);
    if is_quiet {
        return Ok(());
    }
    // The end is a comment, so that the output is a configuration, too.
    let end = match checked.warnings.len() {
        0 => "# OK".to_owned(),
        1 => "# OK, with a warning".to_owned(),
        count => format!("# OK, with {count} warnings"),
    };
    print(format!("{}\n{end}\n", checked.text).as_bytes())
}

/// Writes the errors of a configuration to standard error, and sums them up.
fn explain(errors: &Errors) -> String {
    tell(&errors.0, say::lines);
    NOT_USED.to_owned()
}

/// Writes messages, whose text is safe for terminals, to standard error.
fn tell(messages: &[Message], lines: fn(&Message) -> Vec<u8>) {
    for message in messages {
        // If standard error is closed, the exit code alone reports the error.
        let _ = io::stderr().write_all(&lines(message));
    }
}

/// Prints one page for the command and its subcommands.
fn man() -> Result<(), String> {
    let mut page = Vec::new();
    let command = Cli::command();
    let write = |page: &mut Vec<u8>| -> io::Result<()> {
        let mut first = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut first)?;
        let mut first = String::from_utf8_lossy(&first).into_owned();
        // The subcommands have no pages of their own.
        for name in command.get_subcommands().map(clap::Command::get_name).chain(["help"]) {
            first = first.replace(&format!(r"samum\-{name}(1)"), &format!("samum {name}"));
        }
        page.write_all(first.as_bytes())?;
        for sub in command.get_subcommands().filter(|sub| {
            ["serve", "check", "reload", "upgrade", "health", "explain", "stack", "preload"]
                .contains(&sub.get_name())
        }) {
            let man = clap_mangen::Man::new(sub.clone());
            writeln!(page, ".SH \"SAMUM {}\"", sub.get_name().to_uppercase())?;
            man.render_description_section(page)?;
            man.render_synopsis_section(page)?;
            man.render_options_section(page)?;
        }
        Ok(())
    };
    write(&mut page).map_err(|error| format!("cannot make the man page: {error}"))?;
    print(&page)
}

/// Prints text. A reader that closes the pipe early (`| head`) is no error.
fn print(text: &[u8]) -> Result<(), String> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}
