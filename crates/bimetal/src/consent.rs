//! A question is asked before a group is locked for what it is about: whoever it waits for may be away for hours, and meanwhile others need
//! the group. So it is looked twice, with the lock, which is given back in between: for the question, and whether all is still as it was
//! asked about.

use anyhow::{bail, Result};

use crate::output::confirm;
use crate::runstate::Lock;

/// What somebody has said to a question.
pub(crate) enum Consent {
    /// Nobody is to be asked.
    Given,
    /// Only the question is wanted yet.
    Wanted,
    /// Yes, to this one.
    To(Question),
}

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) words: String,
    /// What tells what it is about from what has the same words.
    pub(crate) about: Vec<String>,
}

/// How far a look has come.
pub(crate) enum Looked<T> {
    /// There is something to ask first.
    Asks(Question),
    /// To the end.
    Done(T),
}

impl Consent {
    /// The question back if it has to be asked first. Refused if another one was.
    pub(crate) fn covers(&self, question: Question) -> Result<Option<Question>> {
        match self {
            Consent::Given => Ok(None),
            Consent::Wanted => Ok(Some(question)),
            Consent::To(asked) if *asked == question => Ok(None),
            Consent::To(_) => bail!(
                "what was asked about is not so any more: it was used or changed while the question waited, and nothing was changed now; \
                 give the command again"
            ),
        }
    }
}

/// Takes the lock and looks, asks without it unless `yes` is given, and takes it again to look again and do it. Where nothing is to be
/// asked that is done at once.
pub(crate) fn after_asking<T>(
    yes: bool,
    lock: impl Fn() -> Result<Lock>,
    mut look: impl FnMut(Consent) -> Result<Looked<T>>,
) -> Result<(T, Lock)> {
    let held = lock()?;
    let question = match look(if yes { Consent::Given } else { Consent::Wanted })? {
        Looked::Done(done) => return Ok((done, held)),
        Looked::Asks(question) => question,
    };
    drop(held);
    confirm(&question.words, yes)?;
    let held = lock()?;
    match look(Consent::To(question))? {
        Looked::Done(done) => Ok((done, held)),
        Looked::Asks(question) => bail!("{}\nNobody was asked, and nothing was changed: this is a bug", question.words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_is_one_to_what_was_asked_and_to_nothing_else() {
        let question = |words: &str, about: &str| Question { words: words.into(), about: vec![about.into()] };
        let asked = Consent::Wanted.covers(question("all", "a")).expect("asks").expect("a question");
        assert_eq!(Consent::Given.covers(question("all", "a")).expect("given"), None);
        let consent = Consent::To(asked);
        assert_eq!(consent.covers(question("all", "a")).expect("the same"), None);
        for other in [question("all", "b"), question("more", "a")] {
            assert!(consent.covers(other).expect_err("another").to_string().contains("not so any more"));
        }
    }
}
