//! The thread that hears knocks, and those whom they may be for.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use super::bell::{Bell, Ring};
use crate::{
    Error,
    background::Background,
    clock::{Clock, Moment},
    lease::{Doubt, Sweeper},
    mistakes::{Mistake, makes},
    notice,
    store::{Channel, Hold, Knock, Listener, Resource, Store, Token},
    sync::{Condvar, Mutex},
};

/// After so long without a word the server is asked whether it is still there; after as long again it is not.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// The pauses between attempts to listen: each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pause after a refusal that will stay, such as a missing permission.
const PAUSE_WHEN_REFUSED: Duration = Duration::from_secs(30);

/// Said once, until it is so no longer.
const NOT_WOKEN: &str = "waiters cannot be woken, and look again and again instead";

/// Listens at the one channel of a client, on a thread that starts when the first acquire has to wait, and wakes those
/// who are knocked for. It shares no handle of the client, so it never keeps one alive.
pub(crate) struct Knocks {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

struct Thread {
    background: Background,
    stop: Box<dyn Fn() + Send + Sync>,
}

/// What the thread shares with those who may be knocked for.
pub(super) struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Takes back what nobody here needs, so that others get it.
    sweeper: Sweeper,
    channel: Channel,
    command_timeout: Duration,
    poll_interval: Duration,
    place_lasts: Duration,
    state: Mutex<State>,
    closing: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether knocks are heard.
    listening: bool,
    closing: bool,
    expecting: HashMap<Token, Expecting>,
    /// Those who keep to their turn, by what they want.
    turns: HashMap<Resource, Turns>,
}

/// The places of this client for one resource. The first one speaks to the server for all of them.
struct Turns {
    places: BTreeMap<u64, Token>,
    /// When it last did.
    spoken_for: Moment,
}

struct Expecting {
    bell: Arc<Bell>,
    resource: Resource,
    place: Option<u64>,
    /// When it is going to look by itself, for those behind it too.
    next_look: Moment,
}

impl Knocks {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        sweeper: Sweeper,
        channel: Channel,
        command_timeout: Duration,
        poll_interval: Duration,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                store,
                clock,
                sweeper,
                channel,
                command_timeout,
                poll_interval,
                place_lasts: poll_interval * 5 / 2,
                state: Mutex::default(),
                closing: Condvar::default(),
            }),
            thread: Mutex::default(),
        }
    }

    /// Starts to listen, unless it does already. It takes some time until knocks are heard.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let listener = self.shared.store.listener(&self.shared.channel);
            let stop = listener.stopper();
            let shared = self.shared.clone();
            let background =
                Background::spawn("redlatch-knocks", move || shared.run(listener)).map_err(Error::Thread)?;
            *thread = Some(Thread { background, stop });
        }
        Ok(())
    }

    /// Has the thread end.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().closing = true;
        self.shared.closing.notify_all();
        if let Some(thread) = &*self.thread.lock() {
            (thread.stop)();
        }
    }

    /// Waits for the thread to end, for at most `bound`.
    pub(crate) fn join(&self, bound: Duration) {
        let thread = self.thread.lock().take();
        if let Some(Thread { background, .. }) = thread {
            background.join_within(bound);
        }
    }

    /// Whether nobody expects a knock.
    #[cfg(all(test, shuttle))]
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.shared.state.lock();
        state.expecting.is_empty() && state.turns.is_empty()
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn are_heard(&self) -> bool {
        self.shared.are_heard()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Shared {
    /// Has `bell` rung when somebody knocks for `hold`, or when knocks begin or cease to be heard, until what this
    /// returns is dropped.
    pub(super) fn expect(self: &Arc<Self>, hold: &Hold, bell: &Arc<Bell>) -> Expectation {
        let expecting = Expecting {
            bell: bell.clone(),
            resource: hold.resource.clone(),
            place: None,
            next_look: Moment::NEVER,
        };
        self.state.lock().expecting.insert(hold.token.clone(), expecting);
        Expectation {
            shared: self.clone(),
            hold: hold.clone(),
        }
    }

    pub(super) fn are_heard(&self) -> bool {
        self.state.lock().listening
    }

    /// How long a place at the server lasts unless it is asked for again: long enough for one look to fail.
    pub(super) fn place_lasts(&self) -> Duration {
        self.place_lasts
    }

    pub(super) fn poll_interval(&self) -> Duration {
        self.poll_interval
    }

    /// Takes back, in the background, what a waiter has at the server that asked for a lease of that length.
    pub(super) fn clean_up(&self, hold: &Hold, doubt: Doubt, length: Duration) {
        self.sweeper.clean_up(hold, doubt, length.max(self.place_lasts));
    }

    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }
}

impl Shared {
    fn run(&self, mut listener: Box<dyn Listener>) {
        let mut pause = FIRST_PAUSE;
        let mut refused = false;
        loop {
            let rest = match listener.open(self.command_timeout) {
                Ok(()) => {
                    refused = false;
                    self.listen(&mut *listener);
                    pause = FIRST_PAUSE;
                    pause
                }
                Err(failure) if failure.passes() => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    pause
                }
                Err(failure) => {
                    if !refused {
                        notice::warn(NOT_WOKEN, &Error::from(failure));
                    }
                    refused = true;
                    PAUSE_WHEN_REFUSED
                }
            };
            if self.closes_within(rest) {
                return;
            }
        }
    }

    /// Hears knocks until the line breaks, or the client goes.
    fn listen(&self, listener: &mut dyn Listener) {
        self.note_listening(true);
        while let Ok(knock) = listener.next(HEARTBEAT)
            && !self.state.lock().closing
        {
            if let Some(knock) = knock {
                self.deliver(knock);
            }
        }
        self.note_listening(false);
    }

    /// Everybody looks after this: those who had looked before knocks were heard may have been passed over, and those
    /// who look while they are not have to do so again and again.
    fn note_listening(&self, listening: bool) {
        let mut state = self.state.lock();
        state.listening = listening;
        for expecting in state.expecting.values().filter(|_| !makes(Mistake::ListensInSilence)) {
            expecting.bell.ring(Ring::News);
        }
    }

    fn deliver(&self, Knock { hold, after }: Knock) {
        let state = self.state.lock();
        match state.expecting.get(&hold.token) {
            Some(_) if makes(Mistake::DropsAKnock) => {}
            Some(expecting) if after.is_zero() => expecting.bell.ring(Ring::Knock),
            Some(expecting) => expecting
                .bell
                .ring_at(self.clock.now() + after + Duration::from_millis(1)),
            // It has just ended its wait: the others must not wait until its claim is over. Or it has the key already.
            None if after.is_zero() => {
                drop(state);
                self.sweeper.pass_on(&hold, self.place_lasts);
            }
            None => {}
        }
    }

    fn closes_within(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.closing || makes(Mistake::SleepsThroughTheEnd) {
            state = self.closing.wait_for(state, pause);
        }
        state.closing
    }
}

/// Somebody who may be knocked for.
pub(super) struct Expectation {
    shared: Arc<Shared>,
    hold: Hold,
}

impl Expectation {
    /// Has `bell` rung from now on, for what the former one was rung for and not heard as well.
    pub(super) fn rebind(&self, bell: &Arc<Bell>) {
        // Nothing is delivered meanwhile.
        let mut state = self.shared.state.lock();
        if let Some(expecting) = state.expecting.get_mut(&self.hold.token) {
            if !makes(Mistake::InheritsInSilence) {
                expecting.bell.pass_to(bell);
            }
            expecting.bell = bell.clone();
        }
    }

    /// Notes which place it has at the server among those that keep to their turn.
    pub(super) fn note_place(&self, place: Option<u64>) {
        let mut state = self.shared.state.lock();
        state.note_place(&self.hold.token, place, self.shared.clock.now());
    }

    /// Notes when it is going to look by itself. Should it be gone by then, the next one of this client does.
    pub(super) fn note_next_look(&self, at: Moment) {
        let mut state = self.shared.state.lock();
        if let Some(expecting) = state.expecting.get_mut(&self.hold.token) {
            expecting.next_look = at;
        }
    }

    /// Whether another one of this client has an older place for the same: the first speaks to the server for all.
    pub(super) fn is_kept_by_another(&self) -> bool {
        let state = self.shared.state.lock();
        let own = state.expecting.get(&self.hold.token);
        own.is_some_and(|own| own.place.is_some()) && state.first(&self.hold.resource) != Some(&self.hold.token)
    }

    /// Those of this client for whose places it has to speak now: all behind it, if it is the first and nobody has done
    /// so lately.
    pub(super) fn companions(&self) -> Vec<(Token, u64)> {
        let shared = &self.shared;
        let state = shared.state.lock();
        let Some(turns) = state.turns.get(&self.hold.resource) else {
            return Vec::new();
        };
        let is_first = turns
            .places
            .first_key_value()
            .is_some_and(|(_, first)| *first == self.hold.token);
        if !is_first || shared.clock.now() < turns.spoken_for + shared.poll_interval / 2 {
            return Vec::new();
        }
        let others = turns.places.iter().skip(1);
        others.map(|(place, token)| (token.clone(), *place)).collect()
    }

    /// Notes that the server has heard of its companions.
    pub(super) fn note_spoken_for(&self) {
        let shared = &self.shared;
        if let Some(turns) = shared.state.lock().turns.get_mut(&self.hold.resource) {
            turns.spoken_for = shared.clock.now();
        }
    }

    /// Takes back the places of those companions who have ended their wait by now: they were kept, or taken anew, maybe
    /// after their own clean-up.
    pub(super) fn let_go_of_the_departed(&self, companions: &[(Token, u64)]) {
        let shared = &self.shared;
        let departed: Vec<&Token> = {
            let state = shared.state.lock();
            let tokens = companions.iter().map(|(token, _)| token);
            tokens.filter(|token| !state.expecting.contains_key(*token)).collect()
        };
        for token in departed {
            let hold = Hold {
                resource: self.hold.resource.clone(),
                token: token.clone(),
            };
            shared.sweeper.pass_on(&hold, shared.place_lasts);
        }
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let spoke_for_others = state.first(&self.hold.resource) == Some(&self.hold.token);
        state.note_place(&self.hold.token, None, shared.clock.now());
        let gone = state.expecting.remove(&self.hold.token);
        if spoke_for_others
            && let Some(gone) = gone
            && let Some(turns) = state.turns.get(&self.hold.resource)
            && let Some((_, next)) = turns.places.first_key_value()
            && let Some(next) = state.expecting.get(next)
        {
            // However fast they come and go, somebody speaks for them in time.
            next.bell
                .ring_at(gone.next_look.min(turns.spoken_for + shared.poll_interval));
        }
    }
}

impl State {
    fn first(&self, resource: &Resource) -> Option<&Token> {
        let (_, token) = self.turns.get(resource)?.places.first_key_value()?;
        Some(token)
    }

    fn note_place(&mut self, token: &Token, place: Option<u64>, now: Moment) {
        let Some(expecting) = self.expecting.get_mut(token) else {
            return;
        };
        if expecting.place == place {
            return;
        }
        let turns = self.turns.entry(expecting.resource.clone()).or_insert_with(|| Turns {
            places: BTreeMap::new(),
            spoken_for: now,
        });
        if let Some(former) = expecting.place {
            turns.places.remove(&former);
        }
        if let Some(place) = place {
            turns.places.insert(place, token.clone());
        }
        expecting.place = place;
        if turns.places.is_empty() {
            self.turns.remove(&expecting.resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{
        client::Core,
        keys::Keyspace,
        store::{Ask, Place, fake::FakeStore},
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn core(store: &FakeStore) -> Core {
        Core::new(
            Arc::new(store.clone()),
            store.clock.clone(),
            Keyspace::default(),
            SECOND,
            SECOND,
        )
    }

    #[test]
    fn the_place_of_one_that_left_while_another_spoke_for_it_is_taken_back() {
        let store = FakeStore::new();
        store.taken_by_another("x", SECOND * 60);
        let core = core(&store);
        core.keeper
            .start(&crate::lease::Terms {
                length: SECOND,
                renewed: true,
                max_hold: Duration::MAX,
                handoffs: 0,
                fair: true,
                replicas: None,
                on_lost: None,
            })
            .unwrap();
        let holds = [(); 2].map(|()| Hold::new(Resource::lock("x")));
        let bell = Arc::new(Bell::default());
        let [first, second] = [&holds[0], &holds[1]].map(|hold| core.knocks.shared().expect(hold, &bell));
        first.note_place(Some(1));
        second.note_place(Some(2));
        store.clock.advance(SECOND);
        let companions = first.companions();
        assert_eq!(companions, [(holds[1].token.clone(), 2)]);
        drop(second);
        let place = Place {
            channel: core.knocks.shared().channel(),
            lasts: SECOND * 60,
            claim: None,
            number: Some(1),
            companions: &companions,
        };
        let ask = Ask {
            hold: &holds[0],
            lease: SECOND,
            fencing_tokens: 1,
            fair: true,
            place: Some(&place),
            asked_for_place: true,
            replicas: None,
            interrupt: None,
        };
        core.store.acquire(&ask, SECOND).unwrap();
        let waiting = || core.store.inspect(&Resource::lock("x"), SECOND).unwrap().waiters;
        assert_eq!(waiting(), 2);
        first.let_go_of_the_departed(&companions);
        let start = std::time::Instant::now();
        while waiting() == 2 {
            assert!(start.elapsed() < SECOND * 10);
            thread::yield_now();
        }
        assert_eq!(waiting(), 1);
    }
}
