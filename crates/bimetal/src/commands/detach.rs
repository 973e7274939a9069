pub(crate) fn run(_a: crate::cli::Detach, _o: crate::output::Output) -> anyhow::Result<()> { Ok(()) }
pub(crate) fn take_down(_g: &str, _a: &crate::api::Attachment) -> anyhow::Result<()> { Ok(()) }
