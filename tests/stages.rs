//! What the example `stages` shows does happen: each stage fails by hand as it is known to, and does not with redlatch.
//!
//! This program is also the processes that are killed in the stages.

#[path = "../examples/stages/lessons/mod.rs"]
mod lessons;
mod support;

use std::{io, process::ExitCode};

use lessons::{World, client_clocks, counter_race, no_timeout, two_commands, under_a_lock};
use libtest_mimic::{Arguments, Trial};
use redis::{Commands, RedisResult};
use support::{SLACK, millis};

fn main() -> ExitCode {
    if lessons::end_as_victim().unwrap() {
        return ExitCode::SUCCESS;
    }
    macro_rules! trials {
        ($($stage:ident)*) => {
            vec![$(Trial::test(stringify!($stage), || {
                let server = support::shared();
                $stage(World::new(&server.url(), io::sink()).unwrap());
                Ok(())
            })),*]
        };
    }
    let trials = trials! {
        without_a_timeout_a_crashed_holder_never_gives_the_lock_back
        between_two_commands_a_crash_leaves_the_lock_stuck
        by_the_clients_clocks_a_slow_one_steals_the_last_slot
        by_a_counter_the_first_to_draw_and_second_to_enter_steals_the_last_slot
        under_a_lock_the_limit_holds_at_the_price_of_round_trips
        nothing_is_left_behind
    };
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn without_a_timeout_a_crashed_holder_never_gives_the_lock_back(world: World) {
    let no_timeout::Outcome { by_hand, with_redlatch } = no_timeout::run(&world).unwrap();

    assert!(!by_hand.has_ttl);
    assert!(by_hand.tries > 1);
    assert!(!by_hand.acquired);

    assert!(with_redlatch.acquired_after < no_timeout::LEASE + SLACK);
}

fn between_two_commands_a_crash_leaves_the_lock_stuck(world: World) {
    let two_commands::Outcome { by_hand, with_redlatch } = two_commands::run(&world).unwrap();

    assert_eq!(by_hand.freed_by_itself, None);
    // The server counts in whole milliseconds.
    assert!(by_hand.waited_then >= two_commands::TIMEOUT - millis(1));
    assert!(by_hand.late_repair.has_prolonged());

    assert!(with_redlatch.freed_by_itself.unwrap() < two_commands::TIMEOUT + SLACK);
    assert!(!with_redlatch.late_try.has_prolonged());
}

fn by_the_clients_clocks_a_slow_one_steals_the_last_slot(world: World) {
    let client_clocks::Outcome { by_hand, with_redlatch } = client_clocks::run(&world).unwrap();

    assert!(!by_hand.let_in_by_a_right_clock);
    assert_eq!(by_hand.holders, ["X", "Y", "A", "B"]);
    assert_eq!(by_hand.times_sent, 2);

    assert_eq!(with_redlatch.holders, client_clocks::LIMIT as usize);
    assert!(!with_redlatch.let_in);
    assert_eq!(with_redlatch.times_sent, 0);
}

fn by_a_counter_the_first_to_draw_and_second_to_enter_steals_the_last_slot(world: World) {
    let counter_race::Outcome { by_hand, with_redlatch } = counter_race::run(&world).unwrap();

    assert_eq!(by_hand.holders, ["X", "Y", "B", "A"]);
    assert_eq!(with_redlatch.won_by_one, counter_race::RACES);
}

fn under_a_lock_the_limit_holds_at_the_price_of_round_trips(world: World) {
    let under_a_lock::Outcome { by_hand, with_redlatch } = under_a_lock::run(&world).unwrap();
    let costs =
        |found: &under_a_lock::Found| [found.acquire, found.release].map(|cost| (cost.round_trips, cost.commands));

    assert_eq!(by_hand.holders, under_a_lock::LIMIT as usize);
    assert_eq!(costs(&by_hand), [(6, 16), (1, 4)]);

    assert_eq!(with_redlatch.holders, under_a_lock::LIMIT as usize);
    assert_eq!(costs(&with_redlatch), [(1, 1), (1, 1)]);
}

fn nothing_is_left_behind(world: World) {
    let mut redis = world.connect().unwrap();
    let pattern = format!("*{}*", world.prefix());
    let mut keys = || {
        redis
            .scan_match(&pattern)
            .unwrap()
            .collect::<RedisResult<Vec<String>>>()
            .unwrap()
    };

    under_a_lock::run(&world).unwrap();
    assert!(!keys().is_empty());
    drop(world);
    assert!(keys().is_empty());
}
