//! Who may use the control socket: root, the daemon's own user, and members of the system group `bimetal`.

use crate::paths;

/// Whether this is root or the daemon's own user.
pub(crate) fn is_owner(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Whether a process of this user and group may ask.
pub(crate) fn is_allowed(uid: u32, gid: u32) -> bool {
    if is_owner(uid) {
        return true;
    }
    let Some(bimetal) = paths::group_id("bimetal") else { return false };
    gid == bimetal || is_member(uid)
}

fn is_member(uid: u32) -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (passwd, group) = (read("/etc/passwd"), read("/etc/group"));
    user_name(&passwd, uid).is_some_and(|user| lists(&group, "bimetal", user))
}

fn user_name(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

fn lists(group: &str, name: &str, user: &str) -> bool {
    let line = group.lines().find(|l| l.split(':').next() == Some(name));
    line.and_then(|l| l.split(':').nth(3)).is_some_and(|members| members.split(',').any(|m| m == user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_is_read_from_the_tables() {
        let passwd = "root:x:0:0::/root:/bin/sh\nanna:x:1001:1001::/home/anna:/bin/sh\n";
        let group = "root:x:0:\nbimetal:x:990:bob,anna\n";
        assert_eq!(user_name(passwd, 1001), Some("anna"));
        assert_eq!(user_name(passwd, 7), None);
        assert!(lists(group, "bimetal", "anna"));
        assert!(!lists(group, "bimetal", "ann"));
        assert!(!lists(group, "wheel", "anna"));
    }

    #[test]
    fn the_group_alone_makes_no_owner() {
        let own = rustix::process::geteuid().as_raw();
        let other = [1001, 65534].into_iter().find(|uid| *uid != own).unwrap_or_default();
        assert_eq!([0, own, other].map(is_owner), [true, true, false]);
    }

    #[test]
    fn root_and_the_own_user_are_allowed() {
        assert!(is_allowed(0, 0));
        assert!(is_allowed(rustix::process::geteuid().as_raw(), 12345));
    }
}
