//! What stands on the server for a name.

use std::{fmt, time::Duration};

/// What stood on the server for a name when it was [looked](crate::Lock::inspect) [at](crate::Semaphore::inspect).
///
/// For operators and tests. It may be outdated by the time it is read: whether one's own lease still holds is what
/// [`Guard::check`](crate::Guard::check) is for. Its `Display` is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Those who hold it, of redlatch or not: none or one for a lock.
    pub holders: Vec<Holder>,
    /// The fencing token that was drawn last: a holder's, or one that was drawn with it for those to whom the lock
    /// may be [handed on](crate::Lock::handoffs). `None` when nobody holds it, or if redlatch has not granted it in the
    /// last two days.
    pub fencing_token: Option<u64>,
    /// How many wait for it, as far as the server knows: threads with [`fair`](crate::Lock::fair), otherwise clients,
    /// whose threads stand behind each other within them. One that was killed counts for two and a half [poll
    /// intervals](crate::ClientBuilder::poll_interval) more. Those of other libraries are not among them.
    pub waiters: usize,
    /// How many permits were left to waiters that were woken and have not come for them yet: nobody holds them, and
    /// nobody else can have them. For a lock 1 or 0.
    pub reserved: u32,
    /// How many permits there are: 1 for a lock. It governs: what was [set](crate::Semaphore::set_limit), or else what
    /// is declared.
    pub limit: u32,
    /// How many permits its users declare: 1 for a lock. If nothing is kept on the server, what the caller declares.
    pub declared_limit: u32,
}

/// One hold, as it stands on the server.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The holder's token: that of its [`Guard`](crate::Guard::token), or what another library put there.
    pub token: Vec<u8>,
    /// When the hold ends by itself, unless it is renewed.
    pub expiry: Expiry,
    /// How many permits it has: 1 for a lock.
    pub permits: u32,
}

/// When a hold ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// After this time, in whole milliseconds.
    In(Duration),
    /// Never: another library put it there without a TTL. If its holder has crashed, it stays until somebody
    /// [deletes](crate::Lock::force_release) it.
    Never,
}

impl Inspection {
    /// Tells how many permits are free: neither held nor reserved.
    pub fn available(&self) -> u32 {
        let held = self.holders.iter().map(|holder| holder.permits);
        held.fold(self.limit, u32::saturating_sub).saturating_sub(self.reserved)
    }

    /// Tells whether nobody holds it and nothing is reserved.
    pub fn is_free(&self) -> bool {
        self.holders.is_empty() && self.reserved == 0
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holders: Vec<String> = self.holders.iter().map(Holder::to_string).collect();
        let mut parts = Vec::new();
        if self.is_free() {
            parts.push(if self.limit > 0 { "free" } else { "held by nobody" }.to_owned());
        }
        if !holders.is_empty() {
            parts.push(format!("held by {}", holders.join(" and ")));
        }
        match self.reserved {
            0 => {}
            1 => parts.push("reserved for a waiter".to_owned()),
            reserved => parts.push(format!("{reserved} reserved for waiters")),
        }
        if (self.declared_limit, self.limit) != (1, 1) {
            parts.push(format!("{} of {} permits free", self.available(), self.limit));
        }
        if self.declared_limit != self.limit {
            parts.push(format!("{} declared", self.declared_limit));
        }
        if let Some(token) = self.fencing_token {
            parts.push(format!("last fencing token {token}"));
        }
        if self.waiters > 0 {
            parts.push(format!("{} waiting", self.waiters));
        }
        f.write_str(&parts.join("; "))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (", self.token.escape_ascii())?;
        if self.permits != 1 {
            write!(f, "{} permits, ", self.permits)?;
        }
        write!(f, "{})", self.expiry)
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expiry::In(left) => write!(f, "expires in {left:?}"),
            Expiry::Never => f.write_str("no expiry"),
        }
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("token", &self.token.escape_ascii().to_string())
            .field("expiry", &self.expiry)
            .field("permits", &self.permits)
            .finish()
    }
}
