use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn hop(n: usize) -> NextHop {
    let [.., a, b, c, d] = n.to_be_bytes();
    NextHop::new(Mac([2, 0, a, b, c, d]), n.is_multiple_of(3).then_some(7))
}

fn full() -> Neighbours {
    let mut neighbours = Neighbours::new();
    for n in 0..Neighbours::MAX {
        assert_eq!(neighbours.learn(hop(n)).map(usize::from), Some(n));
    }
    neighbours
}

#[test]
fn a_virtual_lan_is_part_of_the_next_hop() {
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    let hops = [None, Some(1), Some(4095)].map(|vlan| NextHop::new(mac, vlan));
    let mut neighbours = Neighbours::new();
    assert_eq!(hops.map(|hop| neighbours.learn(hop)), [Some(0), Some(1), Some(2)]);
    assert_eq!(hops.map(|hop| neighbours.learn(hop)), [Some(0), Some(1), Some(2)]);
    for (hop, vlan) in hops.into_iter().zip([None, Some(1), Some(4095)]) {
        let header = hop.header(Mac::BROADCAST, EtherType::IPV6);
        assert_eq!((header.destination, header.vlan), (mac, vlan));
        let received = ethernet::Header { source: mac, destination: Mac::BROADCAST, ..header };
        assert_eq!(NextHop::of(&received), hop);
    }
}

#[test]
fn an_entry_in_use_is_never_replaced() {
    let mut neighbours = full();
    for n in 0..Neighbours::MAX {
        if n != 500 {
            neighbours.hold(u16::try_from(n).unwrap());
        }
    }
    for n in 0..10 {
        assert_eq!(neighbours.learn(hop(Neighbours::MAX + n)), Some(500));
    }
    neighbours.hold(500);
    assert_eq!(neighbours.learn(hop(9999)), None);
    neighbours.release(7);
    assert_eq!(neighbours.learn(hop(9999)), Some(7));
    assert_eq!(neighbours.get(7), hop(9999));
}

#[test]
fn handshakes_use_no_more_entries_while_three_quarters_are_used() {
    let mut neighbours = full();
    let index = |n: usize| u16::try_from(n).unwrap();
    let last = Neighbours::HANDSHAKES_MAX - 1;
    (0..last).for_each(|n| neighbours.hold(index(n)));
    let (free, other) = (index(last), index(last + 1));
    assert!(neighbours.is_for_handshakes(free));
    neighbours.hold(free);
    assert!(neighbours.is_for_handshakes(free) && !neighbours.is_for_handshakes(other));
    // A handshake stays where it is, and a connection does not.
    assert_eq!(neighbours.relearn_in_handshake(free, hop(last + 1)), free);
    assert_eq!(neighbours.relearn_in_handshake(free, hop(0)), 0);
    assert!(neighbours.is_for_handshakes(other), "the entry is free again");
    neighbours.hold(free);
    assert_eq!(neighbours.relearn(0, hop(last + 1)), other);
}

#[test]
fn an_entry_that_was_found_has_a_second_chance() {
    let mut neighbours = full();
    // All were found when they were learned: a round takes their chances, and replaces the first.
    assert_eq!(neighbours.learn(hop(2000)), Some(0));
    assert_eq!(neighbours.learn(hop(1)), Some(1));
    assert_eq!(neighbours.learn(hop(2001)), Some(2));
    assert_eq!(neighbours.learn(hop(2002)), Some(3));
}

#[test]
fn a_connection_follows_its_peer_to_another_station() {
    let mut neighbours = Neighbours::new();
    let old = neighbours.learn(hop(1)).unwrap();
    neighbours.hold(old);
    assert_eq!(neighbours.relearn(old, hop(1)), old);
    let new = neighbours.relearn(old, hop(2));
    assert_ne!(new, old);
    assert_eq!(neighbours.get(new), hop(2));
    let uses: Vec<_> = neighbours.entries.iter().map(|entry| entry.uses).collect();
    assert_eq!(uses, [0, 1]);
}

#[test]
fn a_connection_stays_where_it_is_if_no_place_is_free() {
    let mut neighbours = full();
    for n in 0..Neighbours::MAX {
        neighbours.hold(u16::try_from(n).unwrap());
    }
    assert_eq!(neighbours.relearn(3, hop(5000)), 3);
    assert_eq!(neighbours.relearn(3, hop(4)), 4);
}

proptest! {
    /// Against a model: the hops of connections.
    #[test]
    fn connections_keep_their_next_hops(
        steps in prop::collection::vec((0..40_usize, 0..3_000_usize), 0..400),
    ) {
        let mut neighbours = full();
        let mut connections = [None; 40];
        for (which, station) in steps {
            match connections[which] {
                None => {
                    let index = neighbours.learn(hop(station)).unwrap();
                    neighbours.hold(index);
                    connections[which] = Some((index, station));
                }
                Some((index, _)) if station % 2 == 0 => {
                    neighbours.release(index);
                    connections[which] = None;
                }
                Some((index, _)) => {
                    connections[which] = Some((neighbours.relearn(index, hop(station)), station));
                }
            }
            for (index, station) in connections.into_iter().flatten() {
                prop_assert_eq!(neighbours.get(index), hop(station));
            }
        }
        let uses: u32 = neighbours.entries.iter().map(|entry| entry.uses).sum();
        prop_assert_eq!(uses as usize, connections.iter().flatten().count());
        let used = neighbours.entries.iter().filter(|entry| entry.uses > 0).count();
        prop_assert_eq!(neighbours.used, used);
    }
}
