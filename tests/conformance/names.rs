//! Names that a store takes if it need not keep all keys of a name in one slot of a cluster.

use crate::store::Store;

pub fn any_braces_may_stand_in_a_name(store: &Store) {
    let client = store.client();
    for name in ["{}", "}", "a}b", "a{}b", "}{", "a}{b}"] {
        let guard = client.lock(name).try_acquire().unwrap().expect("free");
        assert!(client.lock(name).try_acquire().unwrap().is_none());
        guard.release().unwrap();
    }
}
