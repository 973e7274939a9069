//! What a header says about itself: the JSON of LUKS2, as the library gives it out after checking it.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use super::{RECOVERY_TOKEN, SLOT_BYTES};

/// One key slot: a passphrase, a recovery key, or what a tool enrolled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotInfo {
    /// Its number.
    pub number: u32,
    /// Its kind in words of LUKS2; `luks2` for passphrases.
    pub kind: String,
    /// It holds the family key. Others hold some other key, which people may have put there by hand.
    pub opens: bool,
    /// Bytes of the key that it holds.
    pub key_bytes: u64,
    /// How the key is derived: `argon2id`, `argon2i` or `pbkdf2`.
    pub pbkdf: String,
    /// Memory that it takes; none to speak of for `pbkdf2`.
    pub memory_kib: Option<u32>,
    /// How often it is repeated.
    pub iterations: u32,
    /// Threads that it uses.
    pub threads: Option<u32>,
    /// When it is tried.
    pub priority: Priority,
    /// Kind of the token that belongs to it: `systemd-recovery`, `systemd-tpm2` and the like.
    pub token: Option<String>,
}

impl SlotInfo {
    /// A passphrase is tried on it, and if it fits, it unlocks the family.
    pub fn is_tried(&self) -> bool {
        self.opens && self.priority != Priority::Ignore
    }

    /// Somebody may know what opens it. What a security chip or token keeps for a slot nobody knows, and nobody asks it here.
    pub fn is_known_to_people(&self) -> bool {
        self.is_tried() && (self.token.is_none() || self.is_recovery_key())
    }

    /// It is marked as one: what opens it is written down somewhere, or should be.
    pub fn is_recovery_key(&self) -> bool {
        self.token.as_deref() == Some(RECOVERY_TOKEN)
    }
}

/// When a slot is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Never, unless asked for by number: a passphrase of this slot does not unlock.
    Ignore,
    /// After the preferred ones.
    Normal,
    /// First.
    Prefer,
}

/// All of it that is of use here.
pub(super) struct Dump {
    pub(super) slots: Vec<SlotInfo>,
    /// Where slots keep what they hold.
    areas: Vec<Range<u64>>,
    pub(super) tokens: Vec<Token>,
    pub(super) key_slots_bytes: u64,
    json_bytes: u64,
}

pub(super) struct Token {
    pub(super) number: u32,
    pub(super) kind: String,
    pub(super) slots: Vec<u32>,
}

impl Dump {
    pub(super) fn parse(json: &str) -> Result<Dump, String> {
        let raw: Raw = serde_json::from_str(json).map_err(|e| e.to_string())?;
        let number = |text: &String| text.parse::<u32>().map_err(|_| format!("{text:?} is no number"));
        let bytes = |text: &String| text.parse::<u64>().map_err(|_| format!("{text:?} is no size"));
        let numbers = |texts: &Vec<String>| texts.iter().map(number).collect::<Result<Vec<u32>, String>>();
        let mut tokens = Vec::new();
        for (n, token) in &raw.tokens {
            tokens.push(Token { number: number(n)?, kind: token.kind.clone(), slots: numbers(&token.keyslots)? });
        }
        let mut opening = Vec::new();
        for digest in raw.digests.values().filter(|d| !d.segments.is_empty()) {
            opening.extend(numbers(&digest.keyslots)?);
        }
        let (mut slots, mut areas) = (Vec::new(), Vec::new());
        for (n, slot) in &raw.keyslots {
            let n = number(n)?;
            let token = tokens.iter().find(|t| t.slots.contains(&n)).map(|t| t.kind.clone());
            slots.push(slot.info(n, opening.contains(&n), token));
            let at = bytes(&slot.area.offset)?;
            areas.push(at..at.saturating_add(bytes(&slot.area.size)?));
        }
        slots.sort_by_key(|s| s.number);
        let (key_slots_bytes, json_bytes) = (bytes(&raw.config.keyslots_size)?, bytes(&raw.config.json_size)?);
        Ok(Dump { slots, areas, tokens, key_slots_bytes, json_bytes })
    }

    /// Bytes of the whole header. Before the JSON of each copy lies a block of 4096.
    pub(super) fn header_bytes(&self) -> Option<u64> {
        self.json_bytes.checked_add(4096)?.checked_mul(2)?.checked_add(self.key_slots_bytes)
    }

    /// Whether a place in the header is where slots are kept, but belongs to none.
    pub(super) fn is_unused(&self, offset: u64) -> bool {
        let begin = self.header_bytes().map_or(u64::MAX, |end| end - self.key_slots_bytes);
        offset >= begin && !self.areas.iter().any(|area| area.contains(&offset))
    }

    /// Slots that a passphrase is tried on.
    pub(super) fn tried(&self) -> usize {
        self.slots.iter().filter(|s| s.is_tried()).count()
    }

    /// No room for another slot.
    pub(super) fn is_full(&self) -> bool {
        self.slots.len() as u64 >= (self.key_slots_bytes / SLOT_BYTES).min(u64::from(super::MAX_SLOTS))
    }
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    keyslots: BTreeMap<String, RawSlot>,
    #[serde(default)]
    tokens: BTreeMap<String, RawToken>,
    #[serde(default)]
    digests: BTreeMap<String, RawDigest>,
    config: RawConfig,
}

#[derive(Deserialize)]
struct RawSlot {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    key_size: u64,
    priority: Option<i64>,
    area: RawArea,
    kdf: Option<RawKdf>,
}

#[derive(Deserialize)]
struct RawArea {
    offset: String,
    size: String,
}

#[derive(Deserialize)]
struct RawKdf {
    #[serde(rename = "type")]
    kind: String,
    time: Option<u32>,
    iterations: Option<u32>,
    memory: Option<u32>,
    cpus: Option<u32>,
}

#[derive(Deserialize)]
struct RawToken {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    keyslots: Vec<String>,
}

#[derive(Deserialize)]
struct RawDigest {
    #[serde(default)]
    keyslots: Vec<String>,
    #[serde(default)]
    segments: Vec<String>,
}

#[derive(Deserialize)]
struct RawConfig {
    json_size: String,
    keyslots_size: String,
}

impl RawSlot {
    fn info(&self, number: u32, opens: bool, token: Option<String>) -> SlotInfo {
        let kdf = self.kdf.as_ref();
        SlotInfo {
            number,
            kind: self.kind.clone(),
            opens,
            key_bytes: self.key_size,
            pbkdf: kdf.map(|k| k.kind.clone()).unwrap_or_default(),
            memory_kib: kdf.and_then(|k| k.memory),
            iterations: kdf.and_then(|k| k.time.or(k.iterations)).unwrap_or_default(),
            threads: kdf.and_then(|k| k.cpus),
            priority: match self.priority {
                Some(0) => Priority::Ignore,
                Some(2) => Priority::Prefer,
                _ => Priority::Normal,
            },
            token,
        }
    }
}
