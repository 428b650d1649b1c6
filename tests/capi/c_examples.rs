//! The programs in ffi-examples/c: built and run as their README says, compiled with all warnings by two compilers,
//! and run under valgrind and with sanitizers.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use libtest_mimic::Trial;
use redlatch::Client;

use crate::{
    sanitized,
    support::{SECOND, Server, wait_until},
    toolchain::{blocks_in, compile, prefix, repository, succeed, trial, under_valgrind, with_library, workshop},
};

const EXAMPLES: [&str; 4] = ["lock", "semaphore", "on_lost", "cancel"];

const DIALECTS: [&str; 2] = ["-std=c99", "-std=c11"];

/// How long an example may take to say its next line, under valgrind on a busy machine too.
const PATIENCE: Duration = SECOND.saturating_mul(120);

pub fn trials() -> Vec<Trial> {
    let rust_too = "sanitizers_find_nothing_in_the_c_examples_and_the_rust_code_under_them";
    vec![
        trial(
            "the_c_examples_print_what_their_readme_says",
            &["cc", "pkg-config"],
            the_c_examples_print_what_their_readme_says,
        ),
        trial(
            "the_lines_of_the_readme_of_the_c_examples_work",
            &["cc", "pkg-config"],
            the_lines_of_the_readme_work,
        ),
        trial("gcc_has_no_warning_for_the_c_examples", &["gcc", "pkg-config"], || {
            has_no_warning("gcc");
        }),
        trial(
            "clang_has_no_warning_for_the_c_examples",
            &["clang", "pkg-config"],
            || has_no_warning("clang"),
        ),
        trial(
            "valgrind_finds_nothing_in_the_c_examples",
            &["gcc", "pkg-config", "valgrind"],
            valgrind_finds_nothing_in_the_c_examples,
        ),
        sanitizer_trial("sanitizers_of_gcc_find_nothing_in_the_c_examples", "gcc"),
        sanitizer_trial("sanitizers_of_clang_find_nothing_in_the_c_examples", "clang"),
        sanitized::trial_with_rust_code(rust_too, &[], || {
            let directory = workshop("c_examples_and_rust_sanitized");
            run_all(&directory, |example, program| {
                sanitized::compile(&["-std=c99"], &[&source(example)], program);
                sanitized::checked(program)
            });
        }),
    ]
}

fn sanitizer_trial(name: &str, compiler: &'static str) -> Trial {
    sanitized::trial(name, compiler, &["pkg-config"], move || {
        let directory = workshop(&format!("c_examples_sanitized_by_{compiler}"));
        run_all(&directory, |example, program| {
            let flags = [&sanitized::CHECKS[..], &["-std=c99"]].concat();
            compile(compiler, &flags, &[&source(example)], program);
            sanitized::checked(program)
        });
    })
}

/// Types the lines of the README, in a copy of the directory, and compares what comes out with what it shows.
fn the_c_examples_print_what_their_readme_says() {
    let home = workshop("c_examples_readme");
    symlink(prefix(), home.join(".local")).unwrap();
    let readme = fs::read_to_string(repository().join("ffi-examples/c/README.md")).unwrap();
    let (_, sections) = readme.split_once("\n## ").expect("sections");
    let mut described = Vec::new();
    for section in sections.split("\n## ") {
        let (file, _) = section.split_once('\n').expect("a heading");
        let Some(example) = file.strip_suffix(".c") else {
            continue;
        };
        described.push(example);
        fs::copy(repository().join(source(example)), home.join(file)).unwrap();

        let (build, run) = blocks_in(section, "sh")[0].split_once('\n').expect("two lines");
        assert_eq!(run.trim_end(), format!("./{example} memory://"));
        let setting = "export PKG_CONFIG_PATH=\"$HOME/.local/lib/pkgconfig\"";
        assert!(readme.contains(setting), "how pkg-config finds the library");
        let mut shell = Command::new("sh");
        shell.args(["-euc", &format!("{setting}\n{build}")]);
        succeed(shell.current_dir(&home).env("HOME", &home));

        let shown = blocks_in(section, "text")[0];
        let run_on = |url: &str, arguments: &[&str]| {
            let mut program = Command::new(home.join(example));
            program.args(arguments).env("REDIS_URL", url);
            assert_shown(shown, &say(example, &mut program, None));
        };
        run_on("redis://not used", &["memory://"]);
        run_on("memory://", &[]);
        let server = Server::start();
        let mut program = Command::new(home.join(example));
        assert_shown(
            shown,
            &say(example, program.env("REDIS_URL", server.url()), Some(&server)),
        );
    }
    assert_eq!(described, EXAMPLES);
}

/// Those on settings are only compiled, since their servers are not there; those on several locks run.
fn the_lines_of_the_readme_work() {
    let readme = fs::read_to_string(repository().join("ffi-examples/c/README.md")).unwrap();
    let [settings, several] = blocks_in(&readme, "c")[..] else {
        panic!("lines on settings, and on several locks");
    };
    let directory = workshop("c_examples_lines");
    let (source, program) = (directory.join("lines.c"), directory.join("lines"));
    let text = format!(
        "#include <inttypes.h>\n#include <stdio.h>\n#include <redlatch.h>\n\
         int32_t settings(void);\n\
         int32_t settings(void) {{\n{settings}redlatch_client_free(client);\nreturn status;\n}}\n\
         int main(void) {{\nredlatch_client *client = NULL;\n\
         int32_t status = redlatch_client_open(\"memory://\", &client);\nif (status != REDLATCH_OK) return 1;\n\
         {several}redlatch_client_free(client);\nreturn status != REDLATCH_OK;\n}}\n"
    );
    fs::write(&source, text).unwrap();
    compile("cc", &["-std=c99"], &[source.to_str().expect("UTF-8")], &program);
    assert_names_and_tokens(&succeed(&mut with_library(program)));
}

/// What the lines on several locks print.
#[track_caller]
pub fn assert_names_and_tokens(said: &str) {
    let said: Vec<_> = said.lines().map(without_numbers).collect();
    assert_eq!(said, ["account:#: #", "account:#: #"]);
}

fn has_no_warning(compiler: &str) {
    let directory = workshop(&format!("c_examples_by_{compiler}"));
    for example in EXAMPLES {
        for dialect in DIALECTS {
            compile(
                compiler,
                &[dialect, "-O2"],
                &[&source(example)],
                &directory.join(example),
            );
        }
    }
}

fn valgrind_finds_nothing_in_the_c_examples() {
    run_all(&workshop("c_examples_by_valgrind"), |example, program| {
        compile("gcc", &["-std=c99", "-g"], &[&source(example)], program);
        under_valgrind(program)
    });
}

/// Runs each example on a server and without one. What `build` gives is what runs it.
fn run_all(directory: &Path, build: impl Fn(&str, &Path) -> Command) {
    for example in EXAMPLES {
        let program = directory.join(example);
        let server = Server::start();
        say(example, build(example, &program).arg(server.url()), Some(&server));
        say(example, build(example, &program).arg("memory://"), None);
    }
}

fn source(example: &str) -> String {
    format!("ffi-examples/c/{example}.c")
}

/// Runs an example, which has to succeed and to say nothing on its standard error; returns what it printed. The one
/// that waits for a signal gets one: Ctrl-C where it is seen to wait, on a server, and SIGTERM where it is not.
fn say(example: &str, command: &mut Command, server: Option<&Server>) -> String {
    let complaints = Complaints::of(example);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(complaints.file());
    let spawned = command.spawn();
    let mut process = EndedOnDrop(spawned.unwrap_or_else(|error| panic!("{command:?} does not start: {error}")));
    let lines = BufReader::new(process.0.stdout.take().expect("a piped stdout")).lines();
    let (sender, said) = mpsc::channel();
    // On a thread of its own, so that waiting for a line has a bound. It ends with the pipe.
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));

    let mut all = String::new();
    loop {
        match said.recv_timeout(PATIENCE) {
            Ok(line) => {
                all.push_str(&line);
                all.push('\n');
                if line.starts_with("waiting for the lock") {
                    let signal = server.map_or(libc::SIGTERM, |server| {
                        wait_until_queued(server);
                        libc::SIGINT
                    });
                    process.signal(signal);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("{command:?} says nothing more after:\n{all}"),
        }
    }
    let status = process.0.wait().expect("a child to wait for");
    let complaints = complaints.read();
    assert!(status.success(), "{command:?}: {status}\n{all}{complaints}");
    assert!(complaints.is_empty(), "{command:?}: {complaints}");
    all
}

fn wait_until_queued(server: &Server) {
    let lock = Client::open(server.url()).unwrap().lock("example:queue");
    wait_until("the example to stand in the queue", PATIENCE, || {
        lock.inspect().unwrap().waiters == 1
    });
}

struct EndedOnDrop(Child);

impl EndedOnDrop {
    fn signal(&self, number: i32) {
        let pid = i32::try_from(self.0.id()).expect("a pid");
        // SAFETY: no memory is concerned, and the pid is that of a child that was not waited for yet.
        assert_eq!(unsafe { libc::kill(pid, number) }, 0);
    }
}

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        // It has ended already unless the test fails.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a program writes to its standard error.
struct Complaints(tempfile::NamedTempFile);

impl Complaints {
    fn of(example: &str) -> Self {
        let file = tempfile::Builder::new().prefix(example).tempfile();
        Self(file.expect("a temporary file"))
    }

    fn file(&self) -> File {
        self.0.reopen().expect("a temporary file")
    }

    fn read(&self) -> String {
        fs::read_to_string(self.0.path()).expect("a temporary file")
    }
}

/// Holds a program's output against what the README shows: numbers and tokens may differ, and "…" stands for anything.
#[track_caller]
fn assert_shown(shown: &str, said: &str) {
    let (shown_lines, said_lines) = (shown.lines().count(), said.lines().count());
    assert_eq!(
        shown_lines, said_lines,
        "the README shows:\n{shown}but it says:\n{said}"
    );
    for (shown, said) in shown.lines().zip(said.lines()) {
        let (expected, found) = (without_numbers(shown), without_numbers(said));
        let matches = match expected.split_once('…') {
            None => expected == found,
            Some((start, end)) => found.starts_with(start) && found.ends_with(end),
        };
        assert!(matches, "the README shows:\n{shown}\nbut it says:\n{said}");
    }
}

/// Puts a # for each number, and for each token, which is hexadecimal in backquotes.
fn without_numbers(line: &str) -> String {
    let mut parts = Vec::new();
    for part in line.split('`') {
        if part.len() == 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            parts.push("#".to_owned());
            continue;
        }
        let mut text = String::new();
        for character in part.chars() {
            match character {
                '0'..='9' | '#' if text.ends_with('#') => {}
                '0'..='9' => text.push('#'),
                _ => text.push(character),
            }
        }
        parts.push(text);
    }
    parts.join("`")
}
