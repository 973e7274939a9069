//! A world in memory for tests and fuzzing: streams without sockets, and time that only passes when nobody can run.

mod clock;
mod kernel;
mod pipe;
mod record;

pub use clock::TestRuntime;
pub use kernel::Kernel;
pub use pipe::{pipe, PipeConn};
pub use record::RecordingConn;
