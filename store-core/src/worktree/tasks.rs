//! Who does the tasks of a walk: the threads of a pool, or the caller alone, who then needs no other thread.

use std::cell::RefCell;

use rayon::{Scope, ThreadPool};

type Task<'s> = Box<dyn FnOnce(&Tasks<'_, 's>) + Send + 's>;

/// Where a task starts further ones. The last one started is the first one run.
pub(crate) enum Tasks<'t, 's> {
    /// By the threads of a pool.
    Threads(&'t Scope<'s>),
    /// By the caller, one after the other.
    Caller(&'t RefCell<Vec<Task<'s>>>),
}

impl<'s> Tasks<'_, 's> {
    /// Starts a task. It is done before [`run`] returns.
    pub(crate) fn spawn(&self, task: impl FnOnce(&Tasks<'_, 's>) + Send + 's) {
        match self {
            Self::Threads(scope) => scope.spawn(move |scope| task(&Tasks::Threads(scope))),
            Self::Caller(waiting) => waiting.borrow_mut().push(Box::new(task)),
        }
    }
}

/// Runs a task and all that it starts.
pub(crate) fn run<'s>(pool: Option<&ThreadPool>, first: impl FnOnce(&Tasks<'_, 's>) + Send + 's) {
    if let Some(pool) = pool {
        pool.scope(|scope| first(&Tasks::Threads(scope)));
        return;
    }
    let waiting = RefCell::default();
    first(&Tasks::Caller(&waiting));
    loop {
        let next = waiting.borrow_mut().pop();
        let Some(task) = next else { return };
        task(&Tasks::Caller(&waiting));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::{Tasks, run};

    /// A tree of tasks, each of which starts two below it.
    fn grow<'s>(tasks: &Tasks<'_, 's>, seen: &'s Mutex<Vec<u32>>, number: u32) {
        seen.lock().unwrap().push(number);
        for below in [2 * number, 2 * number + 1] {
            if below < 1000 {
                tasks.spawn(move |tasks| grow(tasks, seen, below));
            }
        }
    }

    #[test]
    fn every_task_is_done_once_with_threads_and_without() {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(3)
            .build()
            .unwrap();
        for pool in [Some(&pool), None] {
            let seen = Mutex::default();
            run(pool, |tasks| grow(tasks, &seen, 1));
            let mut seen = seen.into_inner().unwrap();
            if pool.is_none() {
                assert_eq!(
                    seen[..4],
                    [1, 3, 7, 15],
                    "the last one started is the first one run"
                );
            }
            seen.sort_unstable();
            assert!(seen.into_iter().eq(1..1000));
        }
    }
}
