//! Mistakes that the code could make, for the check by interleaving (`src/interleavings`): it makes them on purpose,
//! one at a time, to show that it finds them. Anywhere else nobody makes any.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mistake {
    /// A waiting thread looks whether its bell has rung, and then goes to sleep whatever happens in between.
    SleepsAfterALook,
    /// A waiter asks for a place at the server before anybody expects the knock.
    ExpectsAfterAsking,
    /// Those who looked before knocks were heard are not told to look again.
    ListensInSilence,
    /// A knock is not delivered.
    DropsAKnock,
    /// A knock for one that holds the key meanwhile takes it away from it.
    PassesOnByForce,
    /// The first in a line leaves it without waking the next.
    LeavesInSilence,
    /// One whose wait is over does not look whether it was handed the lease.
    LosesAHandOver,
    /// When a lease is lost, the thread that waits for it is not woken.
    LosesInSilence,
    /// A thread that waits for the end of its grant is not woken when the lease is handed on.
    HandsOnInSilence,
    /// A lost lease is handed on.
    HandsOnALostLease,
    /// The next in the line is woken before the server was told of the release.
    WakesBeforeTheRelease,
    /// A lease that was handed on is released as well.
    ReleasesWhatItHandedOn,
    /// A lease is renewed after its release.
    RenewsAfterRelease,
    /// One that takes over a place does not hear of the knock that the former owner was too late for.
    InheritsInSilence,
    /// One that was handed a permit leaves its place without waking the next.
    VacatesInSilence,
    /// Several locks are taken in whatever order.
    TakesInNoOrder,
    /// The thread that listens goes to sleep without a look whether the client has gone.
    SleepsThroughTheEnd,
}

#[cfg(not(shuttle))]
pub(crate) const fn makes(_: Mistake) -> bool {
    false
}

#[cfg(shuttle)]
pub(crate) use self::seeded::*;

#[cfg(shuttle)]
mod seeded {
    use std::cell::Cell;

    use super::Mistake;

    // Shuttle runs all threads of an execution on one of the system's.
    thread_local! {
        static MADE: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    pub(crate) fn makes(mistake: Mistake) -> bool {
        MADE.get() == Some(mistake)
    }

    #[cfg(test)]
    pub(crate) fn make(mistake: Option<Mistake>) {
        MADE.set(mistake);
    }
}
