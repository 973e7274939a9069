//! Which requests make a disk seek: those that go on from none of the last ones.
//!
//! Told by where requests lie on the devices, since that is where heads go, and from the ends of the last few: several streams at a
//! time each go on where they were.

use crate::units::MemberIndex;

/// Ends that are remembered: as many streams as a disk's cache has segments.
const ENDS: usize = 16;
/// A request goes on from another if it begins so close to its end, on either side: requests of one stream overtake each other.
const NEAR: u64 = 256 << 10;

/// Bytes of a device that a foreground request reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRange {
    /// The device.
    pub member: MemberIndex,
    /// Where they begin on it.
    pub offset: u64,
    /// How many they are.
    pub bytes: u64,
}

impl DeviceRange {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// The ends of the last requests of a tier.
#[derive(Default)]
pub(super) struct Seeks {
    ends: [Option<(MemberIndex, u64)>; ENDS],
    next: usize,
}

impl Seeks {
    /// Adds a request; whether it makes its device seek.
    pub(super) fn add(&mut self, range: &DeviceRange) -> bool {
        let near = |end: &Option<(MemberIndex, u64)>| {
            end.is_some_and(|(member, at)| member == range.member && at.abs_diff(range.offset) <= NEAR)
        };
        let known = self.ends.iter().position(near);
        let Some(i) = known else {
            self.next = (self.next + 1) % ENDS;
            self.ends[self.next] = Some((range.member, range.end()));
            return true;
        };
        // Whoever was overtaken does not take the stream back.
        self.ends[i] = self.ends[i].max(Some((range.member, range.end())));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(member: MemberIndex, offset: u64, bytes: u64) -> DeviceRange {
        DeviceRange { member, offset, bytes }
    }

    #[test]
    fn streams_seek_once_however_many_there_are_and_in_what_order_they_come() {
        let mut s = Seeks::default();
        let mut seeks = 0;
        for n in 0..100u64 {
            for stream in 0..12u64 {
                // The two halves of each MiB overtake each other.
                let offset = (stream << 40) + (n ^ 1) * (128 << 10);
                seeks += u32::from(s.add(&at(1, offset, 128 << 10)));
            }
        }
        assert_eq!(seeks, 12);
    }

    #[test]
    fn whoever_is_overtaken_does_not_take_the_stream_back() {
        let (mut s, part) = (Seeks::default(), NEAR / 2);
        assert!(s.add(&at(1, 0, part)));
        // The third part comes before the second.
        assert!(!s.add(&at(1, 2 * part, part)));
        assert!(!s.add(&at(1, part, part)));
        assert!(!s.add(&at(1, 4 * part + part / 2, part)));
    }

    #[test]
    fn what_lies_apart_or_on_another_device_seeks() {
        let mut s = Seeks::default();
        assert!(s.add(&at(1, 0, 4096)));
        assert!(!s.add(&at(1, 4096, 4096)));
        assert!(s.add(&at(2, 8192, 4096)));
        assert!(s.add(&at(1, 8192 + NEAR + 1, 4096)));
        assert!(s.add(&at(1, u64::MAX, u64::MAX)));
        // Forgotten after as many others.
        (0..ENDS as u64).for_each(|n| assert!(s.add(&at(1, (n + 1) << 30, 4096))));
        assert!(s.add(&at(2, 12288, 4096)));
    }
}
