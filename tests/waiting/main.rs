//! Waiting for locks and permits: that a release wakes those who wait, in which order they are served, and that nothing
//! of a wait stays behind.
//!
//! In nearly all tests a waiter looks by itself only once a minute, and leases last as long. So whatever happens within
//! seconds happens because somebody was woken. Each test has a server of its own.
//!
//! This program is also the other processes: see `worker`.

mod cancel;
mod corner;
mod cost;
mod crashes;
mod events;
mod fallback;
mod local;
mod lost;
mod order;
mod permits;
mod prompt;
mod record;
#[path = "../support/mod.rs"]
mod support;
mod terms;
mod worker;

use std::process::ExitCode;

use corner::Corner;
use libtest_mimic::{Arguments, Trial};
use terms::{
    Kind::{self, Lock},
    PAIR, THREE,
};

fn main() -> ExitCode {
    if let Some(url) = support::worker_url() {
        worker::run(&url);
        return ExitCode::SUCCESS;
    }
    let mut trials = Vec::new();
    macro_rules! trials {
        ($kind:ident, $fair:literal: $($module:ident::$scenario:ident)*) => {$(
            let name = concat!(stringify!($module), "::", stringify!($scenario));
            trials.push(trial(name, $kind, $fair, $module::$scenario));
        )*};
        ($kind:ident: $($module:ident::$scenario:ident)*) => {
            trials!($kind, false: $($module::$scenario)*);
            trials!($kind, true: $($module::$scenario)*);
        };
    }
    trials! { Lock:
        prompt::a_release_at_any_point_of_a_wait_wakes_the_waiter
        prompt::a_release_at_any_point_of_a_wait_wakes_a_thread_of_another_client
        prompt::a_release_at_any_point_of_a_wait_wakes_a_thread_of_the_same_client
        prompt::a_waiter_whose_subscription_ends_before_or_after_the_release_is_woken
        prompt::a_waiter_whose_connections_all_end_is_woken
        prompt::a_short_wait_ends_in_time_beside_a_long_one
        prompt::nobody_who_is_woken_in_vain_gives_up_early
        crashes::a_killed_head_of_the_queue_does_not_hold_up_the_next
        crashes::ten_killed_waiters_do_not_hold_up_the_eleventh
        crashes::a_stopped_waiter_is_passed_over_and_served_later
        crashes::the_lock_of_a_killed_holder_goes_to_a_waiter_when_the_lease_ends
        order::sixteen_processes_that_start_at_once_all_get_their_turns
        order::a_guard_in_hand_means_that_its_token_stands_at_the_key
        local::fencing_tokens_rise_from_thread_to_thread
        local::a_lost_lease_is_not_handed_on
        local::those_behind_notice_the_end_of_a_lease_that_is_never_released
        local::an_outage_is_ridden_out_by_those_behind_too
        cancel::a_cancelled_wait_ends_at_once_and_leaves_nothing
        cancel::a_wait_that_is_cancelled_around_the_release_leaves_no_lease
        cancel::a_wait_that_times_out_around_the_release_leaves_no_lease
        cancel::a_wait_of_a_thread_is_cancelled_beside_another_of_its_client
        lost::a_waiter_whose_request_or_reply_is_lost_is_woken_all_the_same
        lost::a_release_whose_reply_is_lost_wakes_the_waiter_and_has_succeeded
        lost::a_place_that_is_taken_after_its_waiter_has_gone_is_given_up
        lost::a_place_that_nobody_gives_up_is_passed_on_by_the_client_that_is_knocked_for_it
        lost::a_place_of_a_client_that_has_gone_holds_up_nobody_for_long
        lost::scripts_may_be_flushed_at_any_point_of_a_wait
        events::a_flush_during_a_wait_leaves_nobody_waiting
        events::waiters_are_woken_once_a_server_is_back_without_its_data
        events::waiters_keep_their_places_when_a_server_is_back_with_its_data
        events::a_knock_that_is_lost_is_made_up_for_within_a_poll_interval
        events::a_line_that_has_fallen_silent_is_found_out
        cost::no_key_is_without_a_ttl_under_contention
        cost::nothing_is_left_once_nobody_waits
        cost::nothing_is_published_while_nobody_waits
        cost::a_try_registers_nobody
        prompt::waiters_for_names_of_any_bytes_are_woken
        fallback::a_client_that_hears_nothing_is_served_among_those_who_do
        fallback::waiters_of_one_client_are_served_at_once_after_the_data_were_lost
        fallback::a_user_without_channels_waits_by_polling
        fallback::the_release_of_a_holder_who_may_not_publish_is_noticed
        fallback::the_release_of_a_foreign_lock_is_noticed_within_a_poll_interval
        fallback::a_wait_much_longer_than_a_sign_of_life_keeps_its_place
    }
    trials! { Lock, false:
        crashes::two_stopped_waiters_do_not_hold_up_the_third
        lost::a_turn_that_finds_nobody_waiting_any_more_frees_the_lock
        lost::a_lock_is_handed_on_however_far_away_the_server_is
        lost::a_cancelled_wait_leaves_the_others_of_its_client_alone
        fallback::a_waiter_is_served_among_fair_threads_of_its_client_that_hold_the_lock_for_long
        prompt::two_thousand_names_are_waited_for_over_one_subscription
        order::a_thread_that_takes_it_again_and_again_passes_nobody_for_long
        local::those_behind_notice_that_the_server_has_lost_the_lease
        local::a_hand_over_spares_the_server_the_round_trips
        local::without_hand_overs_each_grant_is_a_lease_of_its_own
        local::another_process_gets_its_turn_after_the_hand_overs_that_are_allowed
        lost::a_lease_whose_turn_gets_no_reply_goes_to_somebody_who_waits
        local::a_lease_is_handed_over_to_the_same_settings_only
    }
    trials! { Lock, true:
        fallback::the_first_of_a_client_keeps_the_places_of_the_others
        order::a_long_line_keeps_its_places_however_fast_it_moves
        order::waiters_are_served_in_the_order_of_their_arrival
        order::no_grant_passes_an_older_place
    }
    trials! { PAIR:
        prompt::a_release_at_any_point_of_a_wait_wakes_a_thread_of_another_client
        prompt::a_release_at_any_point_of_a_wait_wakes_a_thread_of_the_same_client
        prompt::waiters_for_names_of_any_bytes_are_woken
        crashes::a_stopped_waiter_is_passed_over_and_served_later
        cancel::a_wait_that_is_cancelled_around_the_release_leaves_no_lease
        lost::a_place_that_nobody_gives_up_is_passed_on_by_the_client_that_is_knocked_for_it
        cost::nothing_is_published_while_nobody_waits
    }
    trials! { PAIR, false:
        cost::nothing_is_left_once_nobody_waits
        events::a_flush_during_a_wait_leaves_nobody_waiting
        lost::a_waiter_whose_request_or_reply_is_lost_is_woken_all_the_same
        order::a_guard_in_hand_means_that_its_token_stands_at_the_key
        crashes::the_lock_of_a_killed_holder_goes_to_a_waiter_when_the_lease_ends
        crashes::a_killed_head_of_the_queue_does_not_hold_up_the_next
        crashes::ten_killed_waiters_do_not_hold_up_the_eleventh
        order::a_thread_that_takes_it_again_and_again_passes_nobody_for_long
        local::another_process_gets_its_turn_after_the_hand_overs_that_are_allowed
        lost::a_lease_whose_turn_gets_no_reply_goes_to_somebody_who_waits
        lost::a_turn_that_finds_nobody_waiting_any_more_frees_the_lock
    }
    trials! { PAIR, true:
        order::waiters_are_served_in_the_order_of_their_arrival
        order::no_grant_passes_an_older_place
    }
    trials! { THREE:
        permits::one_who_wants_three_is_woken_when_the_last_of_them_is_released
        permits::a_release_of_three_permits_wakes_three
        permits::a_release_of_three_permits_serves_three_threads_of_one_client
        permits::the_permits_of_a_killed_holder_go_to_as_many_waiters
        permits::what_a_larger_limit_adds_wakes_as_many
        permits::one_who_wants_several_is_waited_for_by_those_who_keep_to_their_turns_only
        permits::threads_of_one_client_that_want_different_numbers_are_all_woken
    }
    trials! { THREE, false:
        permits::a_permit_that_is_left_to_one_who_does_not_come_goes_to_the_next
        permits::what_one_does_not_come_for_goes_past_those_for_whom_it_is_too_little
    }
    trials! { THREE, true:
        permits::a_lower_limit_takes_back_what_was_left_to_the_last_in_order
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, kind: Kind, fair: bool, scenario: fn(&Corner)) -> Trial {
    let what = match kind {
        Kind::Lock => "",
        Kind::Semaphore { .. } => "permits::",
    };
    let order = if fair { "fair" } else { "plain" };
    Trial::test(format!("{name}::{what}{order}"), move || {
        scenario(&Corner::new(kind, fair));
        Ok(())
    })
}
