//! Looking for locks that nobody will ever free.

use std::{fmt, iter::FusedIterator, vec};

use crate::{Client, Error, store::Auditor};

/// The keys that look like locks without expiry, found while it is iterated. Made by [`Client::audit`].
///
/// A key that is there from beginning to end is found; one that comes or goes meanwhile may be missed. While the server
/// grows or shrinks its table a key can come twice. If the connection breaks, the audit begins anew, unless it can tell
/// that the server is the same as before, for which its user needs the permission `+info`. In a cluster a master that
/// was given slots meanwhile is looked through again, and a key may be missed whose slot is just on its way. After an
/// error it ends.
#[must_use = "an audit looks at nothing until it is iterated"]
pub struct Audit {
    client: Client,
    /// `None` when it has ended.
    auditor: Option<Box<dyn Auditor>>,
    /// What is left of the last page.
    page: vec::IntoIter<Finding>,
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
        let auditor = client.core()?.store.auditor(pattern);
        Ok(Self {
            client,
            auditor: Some(auditor),
            page: Vec::new().into_iter(),
        })
    }

    /// Goes on to the next page; `None` if there is none.
    fn turn_page(&mut self) -> Option<Result<(), Error>> {
        // Not put back after an error or the last page: that is the end.
        let mut auditor = self.auditor.take()?;
        let core = match self.client.core() {
            Ok(core) => core,
            Err(error) => return Some(Err(error)),
        };
        match core.ask(core.command_timeout, |timeout, _| auditor.next_page(timeout)) {
            Ok(page) => {
                self.page = page?.into_iter();
                self.auditor = Some(auditor);
                Some(Ok(()))
            }
            Err(failure) => Some(Err(failure.into())),
        }
    }
}

impl Iterator for Audit {
    type Item = Result<Finding, Error>;

    /// Blocks for at most one command timeout for each page that it has to look through.
    fn next(&mut self) -> Option<Self::Item> {
        if let (Some(_), Err(error)) = (&self.auditor, self.client.core()) {
            // What it has found is the parent's to tell.
            (self.auditor, self.page) = (None, Vec::new().into_iter());
            return Some(Err(error));
        }
        loop {
            if let Some(finding) = self.page.next() {
                return Some(Ok(finding));
            }
            if let Err(error) = self.turn_page()? {
                return Some(Err(error));
            }
        }
    }
}

impl FusedIterator for Audit {}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
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
