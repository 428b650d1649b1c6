//! Prints the locks on a server that nobody will ever free, because they have no expiry.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1/ cargo run --example audit -- 'lock:*' 'mutex:*'
//! ```

use std::process::ExitCode;

use comfy_table::{Table, presets};
use redlatch::{Client, Finding};

const USAGE: &str = "\
Prints the keys that look like locks (strings and hashes) and have no expiry.

Usage: REDIS_URL=redis://HOST/ audit [PATTERN]...

  PATTERN   a glob over whole keys, as SCAN takes it (default: lock:*)
  --help    this text

It looks at the server page by page with SCAN, PTTL and TYPE, reads no value and changes nothing. Whether such a key
is a lock whose holder has crashed is for you to judge; then DEL frees it.";

fn main() -> ExitCode {
    let patterns = match patterns() {
        Ok(Some(patterns)) => patterns,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let url = std::env::var("REDIS_URL").unwrap_or_default();
    if url.is_empty() {
        eprintln!("set REDIS_URL to the server to look at, such as redis://127.0.0.1/");
        return ExitCode::from(2);
    };
    match audit(&url, &patterns) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the audit ended early: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// `None`: only `--help` was wanted.
fn patterns() -> Result<Option<Vec<String>>, lexopt::Error> {
    use lexopt::prelude::*;

    let mut patterns = Vec::new();
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Value(pattern) => patterns.push(pattern.string()?),
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(argument.unexpected()),
        }
    }
    if patterns.is_empty() {
        patterns.push("lock:*".to_owned());
    }
    Ok(Some(patterns))
}

fn audit(url: &str, patterns: &[String]) -> Result<(), redlatch::Error> {
    let client = Client::open(url)?;
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["key", "type", "expiry"]);
    for pattern in patterns {
        for finding in client.audit(pattern)? {
            let Finding { key, data_type, .. } = finding?;
            table.add_row([
                key.escape_ascii().to_string(),
                data_type.to_string(),
                "no expiry".to_owned(),
            ]);
        }
    }
    if table.is_empty() {
        println!("no lock without expiry found for {}", patterns.join(", "));
    } else {
        println!("{table}");
    }
    Ok(())
}
