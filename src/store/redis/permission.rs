//! Naming the permission that the server's user lacks: Redis 7.0 tells only the line of the script.

use std::sync::Arc;

use redis::{ServerError, Value};

use super::{reply::in_its_words, script::Call};
use crate::{error::Source, store::Failure};

/// A refusal for want of a permission.
#[derive(Debug, thiserror::Error)]
#[error("the server's user lacks the permission {missing}")]
struct NotPermitted {
    missing: String,
    source: Source,
}

/// Turns the answer to `call` into a failure if it says that a permission is missing: for the call as a whole, so that
/// nothing ran, or for a command of its script.
pub(super) fn checked(call: &Call, reply: Value) -> Result<Value, Failure> {
    if let Value::ServerError(error) = &reply
        && let Some(missing) = missing(call, error)
    {
        let source = in_its_words(error);
        let why = Arc::new(NotPermitted { missing, source });
        return Err(if error.code() == "NOPERM" {
            Failure::Denied(why)
        } else {
            Failure::Refused(why)
        });
    }
    Ok(reply)
}

/// Turns the answer to the command `name`, which stands in no script, into a failure if it says that the permission for
/// it is missing.
pub(super) fn checked_command(name: &str, reply: Value) -> Result<Value, Failure> {
    match &reply {
        Value::ServerError(error) if error.code() == "NOPERM" => Err(Failure::Denied(Arc::new(NotPermitted {
            missing: format!("to run the command `{name}`"),
            source: in_its_words(error),
        }))),
        _ => Ok(reply),
    }
}

fn missing(call: &Call, error: &ServerError) -> Option<String> {
    let text = error.details()?;
    if text.contains("can't run this command") || text.contains("no permissions to run") {
        let command = quoted(text).or_else(|| called_at_line(text, call.text()))?;
        Some(format!("to run the command `{}`", command.to_lowercase()))
    } else if error.code() == "NOPERM" && text.contains("key") {
        let keys: Vec<String> = call.keys().map(|key| format!("`{}`", key.escape_ascii())).collect();
        Some(format!("on {}", keys.join(" or on ")))
    } else {
        None
    }
}

/// The command in "… no permissions to run the 'get' command".
fn quoted(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("run the '")?;
    Some(rest.split_once('\'')?.0)
}

/// The command that the script calls where the error says that it stopped: "… on @user_script:23."
fn called_at_line<'a>(text: &str, script: &'a str) -> Option<&'a str> {
    let (_, rest) = text.split_once("@user_script:")?;
    let digits = rest
        .trim_start()
        .split(|letter: char| !letter.is_ascii_digit())
        .next()?;
    let line = script.lines().nth(digits.parse::<usize>().ok()?.checked_sub(1)?)?;
    let (_, rest) = line.split_once("call('")?;
    Some(rest.split_once('\'')?.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::script::Scripts, *};

    const SCRIPT: &str = "-- first\nlocal time = redis.call('TIME')\nreturn 1\n";

    #[test]
    fn the_command_is_named_by_the_server_or_found_at_the_line() {
        let text = "User app has no permissions to run the 'client|kill' command";
        assert_eq!(quoted(text), Some("client|kill"));
        for text in [
            "can't run this command or subcommand script: 7a84, on @user_script:2.",
            "Error running script (call to f_7a84): @user_script:2: @user_script: 2: can't run this command",
        ] {
            assert_eq!(called_at_line(text, SCRIPT), Some("TIME"), "{text}");
        }
    }

    #[test]
    fn a_text_that_points_nowhere_names_nothing() {
        for text in [
            "",
            "@user_script:",
            "@user_script:0",
            "@user_script:3",
            "@user_script:99999999999999999999",
        ] {
            assert_eq!(called_at_line(text, SCRIPT), None, "{text}");
        }
    }

    #[test]
    fn no_line_of_a_script_has_two_calls() {
        let scripts = Scripts::new(Duration::ZERO, false);
        for line in scripts.texts().into_iter().flat_map(str::lines) {
            assert!(line.matches("call('").count() <= 1, "{line}");
        }
    }
}
