//! Looking for locks that nobody will ever free.

use std::{fmt, iter::FusedIterator, sync::Arc, vec};

use crate::{Client, Error, store::Cursor};

/// The keys that look like locks without expiry, found while it is iterated. Made by [`Client::audit`].
///
/// A key that is there from beginning to end is found; one that comes or goes meanwhile may be missed. While the server
/// grows or shrinks its table a key can come twice, and after a connection broke the audit begins anew, since the server
/// may have been restarted. After an error it ends.
#[must_use = "an audit looks at nothing until it is iterated"]
pub struct Audit {
    client: Client,
    pattern: Arc<[u8]>,
    /// What is left of the last page.
    page: vec::IntoIter<Finding>,
    next: Next,
}

#[derive(Clone, Copy)]
enum Next {
    Page(Option<Cursor>),
    End,
}

/// A key that looks like a lock and has no TTL: if its holder has crashed, it stays taken for ever.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The whole key on the server.
    pub key: Vec<u8>,
    /// The type of its value.
    pub data_type: DataType,
}

/// The types of values that locks are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataType {
    /// What `SET NX` leaves, and most libraries use.
    String,
    /// What reentrant locks use, such as Redisson's.
    Hash,
}

impl Audit {
    pub(crate) fn new(client: Client, pattern: &[u8]) -> Result<Self, Error> {
        if pattern.is_empty() {
            return Err(Error::invalid(
                "an empty pattern matches no key: `lock:*` matches those that begin with `lock:`",
            ));
        }
        Ok(Self {
            client,
            pattern: pattern.into(),
            page: Vec::new().into_iter(),
            next: Next::Page(None),
        })
    }

    fn turn_page(&mut self, from: Option<Cursor>) -> Result<(), Error> {
        let core = self.client.core()?;
        let (page, _) = core.ask(core.command_timeout, |timeout| {
            core.store.audit(&self.pattern, from, timeout)
        });
        let page = page?;
        self.page = page.findings.into_iter();
        self.next = page.next.map_or(Next::End, |cursor| Next::Page(Some(cursor)));
        Ok(())
    }
}

impl Iterator for Audit {
    type Item = Result<Finding, Error>;

    /// Blocks for at most one command timeout for each page that it has to look through.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(finding) = self.page.next() {
                return Some(Ok(finding));
            }
            let Next::Page(from) = self.next else {
                return None;
            };
            // An error is the end.
            self.next = Next::End;
            if let Err(error) = self.turn_page(from) {
                return Some(Err(error));
            }
        }
    }
}

impl FusedIterator for Audit {}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit")
            .field("pattern", &self.pattern.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finding")
            .field("key", &self.key.escape_ascii().to_string())
            .field("data_type", &self.data_type)
            .finish()
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DataType::String => "string",
            DataType::Hash => "hash",
        })
    }
}
