//! What is told while it happens.

use std::{cell::RefCell, fmt, io::Write};

/// Longer words of commands are cut short, to so many characters.
const LONGEST_WORD: usize = 16;
const SHORT_WORD: usize = 8;

/// Writes what happens, line by line.
pub struct Story {
    out: RefCell<Box<dyn Write>>,
}

impl Story {
    pub fn new(out: impl Write + 'static) -> Self {
        Self {
            out: RefCell::new(Box::new(out)),
        }
    }

    pub fn stage(&self, number: u32, title: &str, known_failure: &str) {
        self.line(format_args!(
            "\n\nStage {number}: {title}\n         Known failure: {known_failure}"
        ));
    }

    pub fn by_hand(&self) {
        self.line("\n  By hand");
    }

    pub fn with_redlatch(&self) {
        self.line("\n  With redlatch");
    }

    /// Somebody does something, and gets an answer.
    pub fn did(&self, what: impl fmt::Display) {
        self.line(format_args!("    * {what}"));
    }

    pub fn server_holds(&self, what: impl fmt::Display) {
        self.line(format_args!("        the server holds: {what}"));
    }

    /// A command, by its words.
    pub fn sent(&self, words: &[String]) {
        let short = words.iter().map(|word| match word.chars().count() {
            ..=LONGEST_WORD => word.clone(),
            _ => format!("{word:.SHORT_WORD$}…"),
        });
        self.line(format_args!("        {}", short.collect::<Vec<_>>().join(" ")));
    }

    pub fn wrong(&self, what: impl fmt::Display) {
        self.line(format_args!("    => WRONG: {what}"));
    }

    pub fn right(&self, what: impl fmt::Display) {
        self.line(format_args!("    => right: {what}"));
    }

    pub fn because(&self, why: &str) {
        for line in why.lines() {
            self.line(format_args!("       {}", line.trim_start()));
        }
    }

    /// A reader that has gone away does not hinder what is told.
    fn line(&self, line: impl fmt::Display) {
        let _ = writeln!(self.out.borrow_mut(), "{line}");
    }
}
