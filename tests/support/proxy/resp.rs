//! As much of RESP as it takes to tell where a request or a reply ends.

use std::io::{self, BufRead, Read};

pub struct Request {
    /// The bytes as they came.
    pub raw: Vec<u8>,
    /// The command's name and its arguments.
    pub args: Vec<Vec<u8>>,
}

impl Request {
    /// Whether the server may speak unasked on this connection from here on.
    pub fn subscribes(&self) -> bool {
        let name = self.args.first().map(|name| name.to_ascii_lowercase());
        let commands: [&[u8]; 4] = [b"subscribe", b"psubscribe", b"ssubscribe", b"monitor"];
        name.is_some_and(|name| commands.contains(&&name[..]))
    }
}

/// A request as it is sent.
pub fn write_request(args: &[Vec<u8>]) -> Vec<u8> {
    let mut raw = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        raw.extend(format!("${}\r\n", arg.len()).into_bytes());
        raw.extend([arg, &b"\r\n"[..]].concat());
    }
    raw
}

pub fn read_request(from: &mut impl BufRead) -> io::Result<Request> {
    let (mut raw, mut args) = (Vec::new(), Vec::new());
    read_value(from, &mut raw, &mut args)?;
    Ok(Request { raw, args })
}

/// Reads one reply as it comes, with the RESP3 pushes and attributes before it.
pub fn read_reply(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut raw = Vec::new();
    loop {
        let start = raw.len();
        read_value(from, &mut raw, &mut Vec::new())?;
        if !matches!(raw[start], b'>' | b'|') {
            return Ok(raw);
        }
    }
}

/// Whether a reply says that the server does not know the script, so that nothing was run.
pub fn is_noscript(reply: &[u8]) -> bool {
    reply.starts_with(b"-NOSCRIPT")
}

/// Appends one value, with all that it contains, to `raw`, and its strings to `strings`.
fn read_value(from: &mut impl BufRead, raw: &mut Vec<u8>, strings: &mut Vec<Vec<u8>>) -> io::Result<()> {
    let mut values_to_read = 1_u64;
    while values_to_read > 0 {
        values_to_read -= 1;
        let start = raw.len();
        from.read_until(b'\n', raw)?;
        let Some(line) = raw[start..].strip_suffix(b"\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let Some((kind, rest)) = line.split_first() else {
            return Err(invalid("an empty line"));
        };
        // Nulls have a length of -1 and nothing after it.
        let length = || {
            let number: i64 = std::str::from_utf8(rest).ok()?.parse().ok()?;
            Some(number.max(0) as u64)
        };
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'=' | b'!' => {
                if rest != b"-1" {
                    let length = length().ok_or_else(|| invalid("a string's length"))?;
                    let start = raw.len();
                    from.take(length + 2).read_to_end(raw)?;
                    if (raw.len() - start) as u64 != length + 2 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    strings.push(raw[start..raw.len() - 2].to_vec());
                }
            }
            b'*' | b'~' | b'>' => {
                values_to_read += length().ok_or_else(|| invalid("an array's length"))?;
            }
            b'%' | b'|' => {
                values_to_read += 2 * length().ok_or_else(|| invalid("a map's length"))?;
            }
            _ => return Err(invalid("a type of value")),
        }
    }
    Ok(())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {what}"))
}
