//! Standard input without the standard library's buffer, which does not tell what it holds.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

pub(crate) struct StandardInput(File);

impl StandardInput {
    #[cfg(unix)]
    pub(crate) fn open() -> io::Result<Self> {
        use std::os::fd::AsFd;
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?.into()))
    }

    #[cfg(windows)]
    pub(crate) fn open() -> io::Result<Self> {
        use std::os::windows::io::AsHandle;
        Ok(Self(io::stdin().as_handle().try_clone_to_owned()?.into()))
    }
}

impl Read for StandardInput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl StandardInput {
    /// Whether data, or the end, can be read within `moment`.
    #[cfg(unix)]
    pub(crate) fn is_ready(&mut self, moment: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let moment = Timespec {
            tv_sec: moment.as_secs().cast_signed(),
            tv_nsec: i64::from(moment.subsec_nanos()),
        };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&moment)).is_ok_and(|ready| ready > 0)
    }

    /// The system cannot tell.
    #[cfg(not(unix))]
    pub(crate) fn is_ready(&mut self, _moment: Duration) -> bool {
        false
    }
}
