//! The behaviour that every store shows alike: each scenario runs on every store that can do what it is about.

mod basics;
mod deletions;
mod exclusive;
mod hand_over;
mod handed_permits;
mod holders;
mod leases;
mod limits;
mod locks;
mod names;
mod operators;
mod order;
mod permits;
mod served;
mod several;
mod several_waits;
mod store;
#[path = "../support/mod.rs"]
mod support;
mod waits;
mod waking;

use exclusive::Kind;
use store::Store;

macro_rules! tests {
    ($state:ident $store:ident of $kind:ident: $($topic:ident { $($scenario:ident)* })*) => {
        $(mod $topic {
            $(test! { $state $topic::$scenario on $store of $kind })*
        })*
    };
}

macro_rules! test {
    (open $topic:ident::$scenario:ident on $store:ident of $kind:ident) => {
        #[test]
        fn $scenario() {
            crate::$topic::$scenario(&crate::Store::$store(crate::Kind::$kind))
        }
    };
    (closed $topic:ident::$scenario:ident on $store:ident of $kind:ident) => {
        #[test]
        #[ignore = "this version cannot open the store's URL"]
        fn $scenario() {
            crate::$topic::$scenario(&crate::Store::$store(crate::Kind::$kind))
        }
    };
}

/// Makes each group a macro that has the group's scenarios tested on a store. `$d` is a dollar sign for those macros.
macro_rules! groups {
    ($d:tt $($group:ident { $($scenarios:tt)* })*) => {
        $(macro_rules! $group {
            ($d state:ident $d store:ident of $d kind:ident) => {
                tests! { $d state $d store of $d kind: $($scenarios)* }
            };
        })*
    };
}

macro_rules! suite {
    ($($state:ident $store:ident { $($kind:ident in $module:ident { $($group:ident)* })* })*) => {
        $(mod $store {
            $(mod $module { $($group! { $state $store of $kind })* })*
        })*
    };
}

// What is said of `any_lock` is shown of a lock, and of a semaphore of limit 1, which behaves as one does. The other
// groups are named after what a store must be able to do, or what one must be:
// - any_name: it takes names whose keys a cluster could not keep in one slot
// - waking: a release wakes those who wait
// - order: waiters have places, `fair` ones keep them, and a look counts them
// - hand_over: the threads of a client hand leases on
// - lock: what has no counterpart in a semaphore
// - lock_waits: the same, and it can do what `waking` and `order` ask for
// - semaphore: what takes more than one permit to show, or a limit
// - deletion: it has keys that somebody else can delete
groups! { $
    any_lock {
        basics {
            at_most_one_of_many_threads_and_clients_holds_the_lock
            a_held_lock_is_refused_to_a_try_and_free_after_the_release
            names_are_apart
            any_bytes_are_a_name
            what_cannot_work_is_refused_before_anything_is_sent
            the_largest_durations_saturate
            fencing_tokens_rise_with_every_grant
            a_guard_may_be_used_and_dropped_on_any_thread
            uses_of_one_lock_object_share_nothing
            a_clone_with_another_lease_keeps_both_leases_right
            closures_run_under_the_lock_and_return_their_value
            a_closure_that_finds_the_lock_busy_does_not_run
            a_panic_in_a_closure_releases_and_unwinds
            a_closure_that_lost_the_lock_has_run_and_is_told_so
            handles_may_go_in_any_order
            the_last_handle_may_go_in_a_callback
        }
        leases {
            leases_shorter_than_a_second_are_honoured
            a_held_lock_is_renewed_and_its_waiters_go_on_waiting
            a_crashed_holders_lock_is_free_within_one_lease
            a_late_release_leaves_the_next_holder_alone
            a_fixed_lease_is_not_renewed
            an_extension_sets_the_lease_and_never_shortens_it
            an_extension_outlives_the_renewals
            a_lost_lease_cannot_be_extended
            a_longest_hold_ends_a_renewed_lease
            a_loss_is_told_by_guard_callback_and_release
            waiting_for_a_loss_ends_with_the_limit
            a_callback_that_blocks_or_panics_costs_no_other_lease
        }
        waits {
            a_wait_ends_when_it_should
            a_wait_outlasts_many_command_timeouts
            a_wait_longer_than_the_lease_yields_a_whole_lease
            a_waiter_gets_the_lock_after_its_release
            a_cancelled_token_ends_the_waits_that_have_it_and_no_others
            a_wait_that_is_cancelled_beforehand_asks_for_nothing
        }
        operators {
            a_look_shows_who_holds_the_lock_and_for_how_long
            a_forced_release_frees_the_lock_and_its_holder_is_told
            no_lock_of_ours_is_found_by_an_audit
        }
    }
    any_name {
        names {
            any_braces_may_stand_in_a_name
        }
    }
    waking {
        waking {
            however_a_hold_ends_a_waiter_of_another_client_is_woken
            waiters_of_several_clients_are_all_served
            a_lease_that_ends_unreleased_wakes_the_waiter_when_it_ends
            the_second_in_line_is_woken_though_the_first_has_just_given_up
            a_waiter_that_gives_up_when_its_turn_has_come_leaves_it_to_the_next
            those_behind_others_of_their_client_time_out_in_time
            the_second_thread_of_a_client_goes_on_where_the_first_gave_up
            a_thread_that_takes_it_again_and_again_passes_a_waiter_a_few_times_at_most
        }
    }
    order {
        order {
            fair_waiters_are_served_in_the_order_in_which_they_came_and_newcomers_after_them
            a_newcomer_is_refused_while_somebody_waits_even_if_nobody_holds_it_yet
            a_place_in_the_order_is_lost_with_the_wait
            a_look_tells_how_many_wait
        }
    }
    hand_over {
        hand_over {
            threads_of_one_client_hand_a_lease_on_and_fencing_tokens_rise
            a_lease_is_handed_over_to_the_same_settings_only
            a_lost_lease_is_not_handed_on
            an_extended_lease_is_not_handed_on
            the_longest_hold_is_counted_anew_from_each_hand_over
            each_grant_has_its_own_callback_told_and_no_former_holders
            fencing_tokens_rise_over_hand_overs_and_the_grants_of_two_clients
        }
    }
    lock {
        locks {
            the_lock_prefix_sets_locks_apart
            a_closure_may_see_its_guard
        }
        several {
            names_are_taken_once_and_in_one_order
            all_are_taken_or_none
            they_are_the_locks_of_those_names
            each_has_its_own_fencing_token_which_rises
            what_cannot_work_is_refused_before_anything_is_sent
            threads_that_take_them_in_any_order_never_deadlock
            at_most_one_of_many_threads_and_clients_holds_each
            the_loss_of_one_is_told_and_the_others_are_given_back
            an_extension_is_of_all
            closures_run_under_all_of_them
            their_handles_may_go_in_any_order
        }
    }
    lock_waits {
        several_waits {
            a_thousand_are_taken_and_given_back
            a_wait_ends_with_all_of_them_or_leaves_nothing
            a_cancelled_wait_leaves_nothing
            what_is_had_is_kept_while_another_is_waited_for
            who_takes_them_again_and_again_passes_nobody_for_long
            what_is_lost_during_the_wait_is_taken_again
            the_longest_hold_is_counted_from_when_all_are_held
        }
    }
    semaphore {
        permits {
            many_threads_and_clients_hold_as_many_permits_as_there_are_and_no_more
            a_busy_semaphore_refuses_a_try_at_once
            permits_are_taken_all_or_none
            numbers_that_cannot_work_are_refused_before_anything_is_sent
            the_largest_numbers_work
            fencing_tokens_of_permits_rise_by_grant
            guards_of_one_semaphore_may_go_in_any_order_on_any_thread
            closures_hold_all_their_permits_and_nothing_afterwards
            semaphores_and_locks_of_other_names_are_apart
            a_lock_is_nothing_to_a_semaphore_of_its_name
            what_is_a_lock_is_no_semaphore_and_the_other_way_round
            a_look_shows_every_holder_and_what_is_left
            whatever_is_held_or_reserved_is_never_more_than_there_is
        }
        served {
            who_wants_several_is_woken_when_enough_were_released_one_by_one
            several_releases_at_once_wake_as_many_waiters
            several_permits_that_come_free_together_serve_several_waiters
            those_behind_one_that_does_not_fit_are_served_unless_it_keeps_to_its_turn
            one_that_does_not_fit_and_gives_up_lets_those_behind_it_go
            fair_waiters_for_few_and_many_permits_are_served_as_they_came
            a_fair_waiter_for_all_permits_does_not_starve_among_single_takers
            a_fair_waiter_for_several_keeps_its_turn_for_longer_than_a_place_lasts
            threads_that_hand_permits_on_let_a_waiter_of_another_client_have_its_turn
            a_permit_that_ends_by_itself_goes_past_those_for_whom_it_is_too_little
            threads_that_take_permits_again_and_again_never_need_to_look_by_themselves
            waits_that_end_in_vain_leave_nothing_reserved
            permits_whose_waiter_gives_up_when_its_turn_has_come_go_to_the_next
            a_renewed_permit_is_held_for_longer_than_its_lease
        }
        handed_permits {
            a_permit_is_handed_on_with_a_new_fencing_token_while_others_hold_theirs
            a_permit_is_handed_on_within_a_turn_though_another_client_waits
            several_permits_are_handed_on_as_one
            permits_are_handed_on_to_those_who_want_as_many
            those_who_release_at_once_hand_on_to_different_threads
            fencing_tokens_differ_over_hand_overs_and_the_grants_of_two_clients
        }
        limits {
            another_limit_is_told_at_once_with_both_and_nothing_is_granted
            a_first_grant_declares_the_limit_and_a_look_does_not
            a_limit_that_is_raised_wakes_one_waiter_for_each_new_permit
            a_limit_that_is_raised_wakes_who_wants_several_once_there_are_enough
            a_lowered_limit_throws_nobody_out_and_lets_nobody_in_until_enough_have_gone
            a_permit_above_a_lowered_limit_is_not_handed_on
            a_limit_that_was_lowered_governs_over_hand_overs
            a_limit_of_nothing_lets_nobody_in
            more_permits_than_a_lowered_limit_has_are_waited_for
            what_was_set_and_what_was_declared_outlive_the_holders
        }
        holders {
            a_crashed_holders_permits_are_free_within_its_own_lease_whatever_those_of_others
            all_permits_of_crashed_holders_come_back_within_their_leases
            handles_with_other_settings_share_the_permits_and_keep_their_leases
            an_extension_is_of_all_permits_of_one_holder_and_of_no_other
            each_lease_is_renewed_or_ends_by_its_own_settings_and_only_its_own_callback_is_told
            a_late_release_gives_back_nothing_of_others
            a_forced_release_throws_out_all_and_each_is_told
            a_forced_release_wakes_those_who_wait
            permits_released_in_any_order_leave_no_lease_behind
        }
    }
    deletion {
        deletions {
            deleted_holders_are_told_and_the_count_is_right_again
            holders_of_what_was_flushed_are_told_and_the_count_is_right_again
            late_releases_after_a_flush_leave_the_others_alone
            waiters_of_what_was_flushed_are_served_at_their_next_look
            a_waiter_is_told_when_others_have_declared_another_limit_meanwhile
            the_limit_is_declared_anew_by_a_grant_after_a_flush
        }
    }
}

// What each store can do. A `closed` one is built all the same, and runs with `--ignored`.
suite! {
    open redis {
        Lock in lock { any_lock any_name waking order hand_over lock lock_waits }
        Semaphore in semaphore { any_lock any_name waking order hand_over semaphore deletion }
    }
    open memory {
        Lock in lock { any_lock any_name waking order hand_over lock lock_waits }
        Semaphore in semaphore { any_lock any_name waking order hand_over semaphore }
    }
    open sentinel {
        Lock in lock { any_lock any_name waking order hand_over lock lock_waits }
        Semaphore in semaphore { any_lock any_name waking order hand_over semaphore deletion }
    }
    open cluster {
        Lock in lock { any_lock waking order hand_over lock lock_waits }
        Semaphore in semaphore { any_lock waking order hand_over semaphore deletion }
    }
    open redlock {
        Lock in lock { any_lock any_name lock }
    }
}
