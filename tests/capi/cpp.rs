//! C++: the header redlatch.hpp, what it promises, and its examples as their README says how to build them.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use libtest_mimic::Trial;

use crate::{
    c_examples, sanitized, support,
    toolchain::{blocks_in, compile, prefix, repository, run, succeed, trial, under_valgrind, with_library, workshop},
};

const PROGRAMS: &str = "tests/capi/programs";

/// What a user may ask of a header beyond the warnings that all sources here are compiled with.
const STRICT: [&str; 3] = ["-Wshadow", "-Wconversion", "-Wsign-conversion"];

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial(
            "cpp::the_examples_are_built_by_the_lines_of_their_readme",
            &["bash", "c++", "pkg-config"],
            || the_examples_work_as_built_by(0),
        ),
        trial(
            "cpp::the_examples_are_built_by_cmake_as_their_readme_says",
            &["bash", "c++", "cmake", "make", "pkg-config"],
            || the_examples_work_as_built_by(1),
        ),
        trial(
            "cpp::the_lines_of_the_readme_work",
            &["c++", "pkg-config"],
            the_lines_of_the_readme_work,
        ),
        trial(
            "cpp::the_examples_name_the_server_that_cannot_be_reached",
            &["c++", "pkg-config"],
            the_examples_name_the_server_that_cannot_be_reached,
        ),
        trial(
            "cpp::each_setting_is_acted_on",
            &["c++", "pkg-config", "timeout"],
            each_setting_is_acted_on,
        ),
        sanitized::trial(
            "cpp::nothing_is_wrong_under_the_sanitizers",
            "clang++",
            &["pkg-config"],
            nothing_is_wrong_under_the_sanitizers,
        ),
        trial(
            "cpp::nothing_is_wrong_under_valgrind",
            &["c++", "pkg-config", "valgrind"],
            nothing_is_wrong_under_valgrind,
        ),
        trial(
            "cpp::work_succeeds_though_its_release_is_not_confirmed",
            &["c++", "pkg-config"],
            work_succeeds_though_its_release_is_not_confirmed,
        ),
        trial(
            "cpp::a_header_of_another_version_is_refused",
            &["c++", "pkg-config"],
            a_header_of_another_version_is_refused,
        ),
        trial(
            "cpp::the_header_leaves_no_macros_behind",
            &["c++", "pkg-config"],
            the_header_leaves_no_macros_behind,
        ),
    ];
    for compiler in ["g++", "clang++"] {
        for standard in ["c++17", "c++20"] {
            trials.push(trial(
                &format!("cpp::the_header_keeps_its_promises_with_{compiler}_in_{standard}"),
                &[compiler, "pkg-config"],
                move || the_header_keeps_its_promises(compiler, standard),
            ));
            trials.push(trial(
                &format!("cpp::two_sources_with_the_header_are_linked_with_{compiler}_in_{standard}"),
                &[compiler, "pkg-config"],
                move || two_sources_with_the_header_are_linked(compiler, standard),
            ));
        }
    }
    trials
}

fn the_header_keeps_its_promises(compiler: &str, standard: &str) {
    let program = workshop(&format!("cpp-promises-{compiler}-{standard}")).join("behaviours");
    build(compiler, &[&format!("-std={standard}")], &["behaviours"], &program);
    succeed(with_library(&program).args(["memory://", "*"]));

    let server = support::shared();
    let pattern = format!("cpp:audit:{compiler}:{standard}:*");
    let (text, hash) = (pattern.replace('*', "text"), pattern.replace('*', "hash"));
    server.run(&format!("SET {text} of-another-library"));
    server.run(&format!("HSET {hash} holder 1"));
    let found = succeed(with_library(&program).args([&server.url(), &pattern]));
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    // While the server grows its table a key can come twice.
    found.dedup();
    assert_eq!(found, [format!("hash {hash}"), format!("string {text}")]);
}

fn two_sources_with_the_header_are_linked(compiler: &str, standard: &str) {
    let program = workshop(&format!("cpp-units-{compiler}-{standard}")).join("units");
    let standard = format!("-std={standard}");
    build(compiler, &[&standard], &["first_unit", "second_unit"], &program);
    succeed(&mut with_library(program));
}

fn nothing_is_wrong_under_the_sanitizers() {
    let workshop = workshop("cpp-sanitizers");
    let flags = [&["-std=c++17", "-O1"], &sanitized::CHECKS[..]].concat();
    on_memory_and_a_server(&flags, "clang++", &workshop, |program| sanitized::checked(program));
}

fn nothing_is_wrong_under_valgrind() {
    let workshop = workshop("cpp-valgrind");
    on_memory_and_a_server(&["-std=c++17", "-g"], "c++", &workshop, |program| {
        under_valgrind(program)
    });
}

fn each_setting_is_acted_on() {
    let program = workshop("cpp-settings").join("settings");
    build("c++", &["-std=c++17"], &["settings"], &program);
    let server = support::Server::start();
    let _replica = server.start_replica();
    let mut bounded = with_library("timeout");
    bounded.args(["--kill-after=5", "180"]).arg(program);
    succeed(bounded.args([server.url(), server.pid().to_string()]));
}

fn work_succeeds_though_its_release_is_not_confirmed() {
    let program = workshop("cpp-unconfirmed").join("unconfirmed");
    build("c++", &["-std=c++17"], &["unconfirmed"], &program);
    let server = support::Server::start();
    succeed(with_library(&program).args([server.url(), server.pid().to_string()]));
}

/// Runs the promises and the examples.
fn on_memory_and_a_server(flags: &[&str], compiler: &str, workshop: &Path, start: impl Fn(&Path) -> Command) {
    let server = support::shared();
    let program = workshop.join("behaviours");
    build(compiler, flags, &["behaviours"], &program);
    succeed(start(&program).args(["memory://", "*"]));
    succeed(start(&program).args([&server.url(), "cpp:audit:*"]));
    for example in EXAMPLES {
        let program = workshop.join(example);
        build_example(compiler, flags, example, &program);
        let has_printed = match example {
            "raii" => raii_has_printed,
            _ => worker_pool_has_printed,
        };
        has_printed(&succeed(start(&program).arg("memory://")));
        has_printed(&succeed(start(&program).arg(server.url())));
    }
}

const EXAMPLES: [&str; 2] = ["raii", "worker_pool"];

#[track_caller]
fn raii_has_printed(output: &str) {
    let (first, others) = output.split_once('\n').expect("several lines");
    let token = first.strip_prefix("held, with fencing token ").expect(output);
    assert!(token.parse::<u64>().is_ok_and(|token| token > 0), "{output}");
    let expected = "a second holder is refused\n\
                    sold one under the lock: 2 left\n\
                    lost: lost the lease of `raii:report` because it ran out\n";
    assert_eq!(others, expected);
}

#[track_caller]
fn worker_pool_has_printed(output: &str) {
    // On a machine that is busy enough, no two of them may have met.
    let output = output.replace("at most 1 at once", "at most 2 at once");
    assert_eq!(output, "12 orders done, at most 2 at once\n1 given up at shutdown\n");
}

/// Follows so many of the README's ways to build them, in a copy, with the library where it says that it is.
fn the_examples_work_as_built_by(way: usize) {
    let examples = repository().join("ffi-examples/cpp");
    let readme = fs::read_to_string(examples.join("README.md")).expect("the README of the examples");
    let [raii, worker_pool] = blocks_in(&readme, "text")[..] else {
        panic!("the README shows what both examples print");
    };
    raii_has_printed(raii);
    worker_pool_has_printed(worker_pool);

    let home = workshop(&format!("cpp-readme-{way}"));
    symlink(prefix(), home.join(".local")).expect("a link to the installed library");
    let copy = home.join("cpp");
    fs::create_dir(&copy).expect("a directory for a copy");
    for entry in fs::read_dir(&examples).expect("the examples") {
        let path = entry.expect("an example").path();
        // Not what somebody has built there.
        if path.is_file() {
            fs::copy(&path, copy.join(path.file_name().expect("a name"))).expect("a copy");
        }
    }
    let server = support::shared();
    for url in [None, Some(server.url())] {
        let mut bash = Command::new("bash");
        bash.args(["-euc", blocks_in(&readme, "sh")[way]])
            .current_dir(&copy)
            .env("HOME", &home);
        bash.env_remove("PKG_CONFIG_PATH").env_remove("LD_LIBRARY_PATH");
        match url {
            Some(url) => bash.env("REDIS_URL", url),
            None => bash.env_remove("REDIS_URL"),
        };
        let printed = succeed(&mut bash);
        let raii = printed.find("held, with").unwrap_or_else(|| panic!("{printed}"));
        let pool = printed.find("12 orders").unwrap_or_else(|| panic!("{printed}"));
        raii_has_printed(&printed[raii..pool]);
        worker_pool_has_printed(&printed[pool..]);
    }
}

/// Those on settings are only compiled, since their servers are not there; those on several locks run.
fn the_lines_of_the_readme_work() {
    let readme = fs::read_to_string(repository().join("ffi-examples/cpp/README.md")).expect("the README");
    let [settings, several] = blocks_in(&readme, "cpp")[..] else {
        panic!("lines on settings, and on several locks");
    };
    let workshop = workshop("cpp-lines");
    let (source, program) = (workshop.join("lines.cpp"), workshop.join("lines"));
    let text = format!(
        "#include <iostream>\n#include <redlatch.hpp>\n\
         void settings();\nvoid settings() {{\n{settings}}}\n\
         int main() {{\n\
         const auto client = redlatch::Client::open(\"memory://\");\n{several}}}\n"
    );
    fs::write(&source, text).expect("a source");
    let flags = [&["-std=c++17"], &STRICT[..]].concat();
    compile("c++", &flags, &[source.to_str().expect("UTF-8")], &program);
    c_examples::assert_names_and_tokens(&succeed(&mut with_library(program)));
}

fn the_examples_name_the_server_that_cannot_be_reached() {
    let workshop = workshop("cpp-unreachable");
    for example in EXAMPLES {
        let program = workshop.join(example);
        build_example("c++", &["-std=c++17"], example, &program);
        let output = run(with_library(&program).arg("unix:///nowhere/at/all"));
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(
            complaint.starts_with("could not get a connection to the server: "),
            "{complaint}"
        );
    }
}

fn a_header_of_another_version_is_refused() {
    let workshop = workshop("cpp-versions");
    let header = fs::read_to_string(prefix().join("include/redlatch.h")).expect("redlatch.h");
    let version = |major: u32, minor: u32, patch: u32| {
        let set = |header: String, part: &str, number: u32| {
            let at = header.find(&format!("#define REDLATCH_VERSION_{part} ")).expect(part);
            let end = at + header[at..].find('\n').expect("a line");
            format!(
                "{}#define REDLATCH_VERSION_{part} {number}{}",
                &header[..at],
                &header[end..]
            )
        };
        let header = set(header.clone(), "MAJOR", major);
        set(set(header, "MINOR", minor), "PATCH", patch)
    };
    let own = |part: &str| part.parse::<u32>().expect("a number");
    let major = own(env!("CARGO_PKG_VERSION_MAJOR"));
    let minor = own(env!("CARGO_PKG_VERSION_MINOR"));
    let patch = own(env!("CARGO_PKG_VERSION_PATCH"));
    let source = workshop.join("opens.cpp");
    fs::write(
        &source,
        "#include <iostream>\n#include <redlatch.hpp>\nint main() {\n    try {\n        \
         redlatch::Client::open(\"memory://\");\n    } catch (const redlatch::Error &error) {\n        \
         std::cout << error.code() << \": \" << error.what();\n    }\n}\n",
    )
    .expect("a source");
    let program = workshop.join("opens");
    let include = format!("-I{}", workshop.display());
    let sources = [source.to_str().expect("UTF-8")];

    // One that is newer than the library: what it declares may not be there.
    fs::write(workshop.join("redlatch.h"), version(major, minor, patch + 1)).expect("a header");
    compile("c++", &["-std=c++17", &include], &sources, &program);
    let said = succeed(&mut with_library(&program));
    assert!(said.starts_with("-10: the program was compiled for redlatch"), "{said}");

    // One that redlatch.hpp was not written for.
    fs::write(workshop.join("redlatch.h"), version(major, minor + 1, 0)).expect("a header");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-fsyntax-only", &include]);
    compiler.arg(format!("-I{}", prefix().join("include").display()));
    let output = run(compiler.args(sources));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && complaint.contains("not of the same version"),
        "{complaint}"
    );

    fs::write(workshop.join("redlatch.h"), version(major, minor, patch)).expect("a header");
    compile("c++", &["-std=c++17", &include], &sources, &program);
    assert_eq!(succeed(&mut with_library(&program)), "");
}

fn the_header_leaves_no_macros_behind() {
    let workshop = workshop("cpp-macros");
    let source = workshop.join("includes.cpp");
    fs::write(&source, "#include <redlatch.hpp>\n").expect("a source");
    let include = prefix().join("include");
    let mut compiler = Command::new("c++");
    compiler
        .args(["-std=c++17", "-E", "-dD", "-I"])
        .arg(&include)
        .arg(&source);
    let preprocessed = succeed(&mut compiler);
    let mut from_header = false;
    let mut macros = Vec::new();
    for line in preprocessed.lines() {
        if line.starts_with("# ") {
            from_header = line.contains("redlatch.hpp");
        } else if let Some(definition) = line.strip_prefix("#define ").filter(|_| from_header) {
            macros.push(definition.trim());
        }
    }
    assert_eq!(macros, ["REDLATCH_HPP"]);
}

/// Compiles programs of the tests, strictly.
fn build(compiler: &str, flags: &[&str], programs: &[&str], program: &Path) {
    let sources: Vec<String> = programs.iter().map(|name| format!("{PROGRAMS}/{name}.cpp")).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    compile(compiler, &[flags, &STRICT].concat(), &sources, program);
}

fn build_example(compiler: &str, flags: &[&str], example: &str, program: &Path) {
    let source = format!("ffi-examples/cpp/{example}.cpp");
    compile(compiler, &[flags, &STRICT].concat(), &[&source], program);
}
