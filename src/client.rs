//! The client: one server, its connections and its background work.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use crate::{
    ClientBuilder, Error, Lock, clock::Clock, fork::ProcessBound, keys::Keyspace, lease::Keeper, store::Store,
};

/// The lease of a lock that sets none.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// A way to one server, shared by the locks made from it. Cheap to clone; open one for each program.
///
/// A client keeps a pool of connections and one connection for the background work, all opened when first needed. It
/// goes with the last of its clones, locks and guards: what is still to be cleaned up gets one more try, and its
/// threads end. That takes at most one command timeout; a callback that is still running then is left to itself.
#[derive(Clone)]
pub struct Client {
    core: ProcessBound<Arc<Core>>,
}

/// What the handles of a client share.
pub(crate) struct Core {
    // First, so that its thread ends while the store is still there.
    pub(crate) keeper: Keeper,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keyspace: Keyspace,
    pub(crate) command_timeout: Duration,
}

impl Client {
    /// Makes a client for the server at `url`, with the defaults of [`ClientBuilder`]. Nothing is sent yet.
    ///
    /// | URL | server |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]`, or `valkey://` | Redis or Valkey over TCP |
    /// | `unix:///path/to/socket[?user=…&pass=…&db=…]` | Redis or Valkey on a Unix socket |
    /// | `memory://[name]` | none: the locks live in this process, shared by the clients of the same URL |
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a URL that cannot be used or has a part that would not be acted on,
    /// [`Error::Unsupported`] for a kind of server that this version does not speak to.
    pub fn open(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder().url(url).build()
    }

    /// Starts a client with settings of your own.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) fn from_parts(core: Core) -> Self {
        Self {
            core: ProcessBound::new(Arc::new(core)),
        }
    }

    /// Names a lock whose lease (30 s unless [set](Lock::lease)) is renewed in the background until it is released.
    ///
    /// The name is bytes; it must not be empty. No I/O.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.clone(), name.as_ref(), DEFAULT_LEASE, true)
    }

    /// Names a lock with a fixed lease, which is never renewed; [`extend`](crate::Guard::extend) it by hand.
    ///
    /// For work that must not run on unnoticed. Size the lease to the slow tail of the work, not the median. The name
    /// is bytes; it must not be empty. No I/O.
    pub fn timed_lock(&self, name: impl AsRef<[u8]>, lease: Duration) -> Lock {
        Lock::new(self.clone(), name.as_ref(), lease, false)
    }

    pub(crate) fn core(&self) -> Result<&Arc<Core>, Error> {
        self.core.get()
    }
}

// No user code runs while anything inside is half changed, so a panic in it leaves nothing broken.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}
