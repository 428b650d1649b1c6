//! The README's sections on C, C++ and Python, followed line by line by a stranger in an empty directory.

use std::{fs, os::unix::fs::symlink, process::Command};

use libtest_mimic::Trial;

use crate::{
    support,
    toolchain::{blocks, prefix, repository, succeed, trial, workshop},
};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("the_readmes_c_program_holds_and_refuses", &["cc", "pkg-config"], || {
            follow("### C", "hold.c");
        }),
        trial(
            "the_readmes_cpp_program_holds_and_refuses",
            &["c++", "pkg-config"],
            || {
                follow("### C++", "hold.cpp");
            },
        ),
        trial("the_readmes_python_program_holds_and_refuses", &["python3"], || {
            follow("### Python", "hold.py");
        }),
    ]
}

/// Saves the program of a section under its name and types the commands; the library is where the README puts it.
fn follow(section: &str, program: &str) {
    let home = workshop(&format!("readme-{program}"));
    symlink(prefix(), home.join(".local")).unwrap();
    symlink(repository(), home.join("redlatch")).unwrap();
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let (mut source, mut commands) = (String::new(), String::new());
    for (language, block) in blocks(under(&readme, section)) {
        if block
            .lines()
            .next()
            .is_some_and(|first| first.contains(&format!(" {program}:")))
        {
            source.push_str(block);
        } else if language == "sh" {
            commands.push_str(block);
        }
    }
    assert!(
        !source.is_empty(),
        "{section} has no program that begins with its name, {program}"
    );
    let server = support::shared();
    let source = source
        .replace("redis://127.0.0.1/", &server.url())
        .replace("item:42", program);
    fs::write(home.join(program), source).unwrap();
    let said = succeed(
        Command::new("sh")
            .args(["-euc", &commands])
            .current_dir(&home)
            .env("HOME", &home),
    );
    let lines: Vec<&str> = said.lines().collect();
    let [held, refused, still_held] = lines[..] else {
        panic!("three lines were expected: {said}");
    };
    let token = held.strip_prefix("held, with fencing token ").expect(held);
    assert!(token.parse::<u64>().unwrap() > 0);
    assert_eq!([refused, still_held], ["a second holder is refused", "still held"]);
    assert_eq!(server.get(&format!("lock:{program}")), None, "it was not released");
}

/// What stands under a heading.
fn under<'a>(readme: &'a str, heading: &str) -> &'a str {
    let start = readme.find(&format!("\n{heading}\n")).expect(heading) + 1 + heading.len();
    let end = readme[start..].find("\n##").map_or(readme.len(), |end| start + end);
    &readme[start..end]
}
