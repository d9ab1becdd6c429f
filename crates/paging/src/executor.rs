//! Threads for what may wait without bound (JBMT-5).
//!
//! One waits for the next task at all times: the last to begin with one starts another before it. So a program's thread that meets an absent
//! page, deep on a stack that may be small, starts none, unless none could be had before. Those that are too many end when they have
//! had nothing to do. Tenants have their turns one after the other, and each has but a part
//! of the threads, the smaller the more are at work: where some name pages that never come, the others' come as ever. So it is with
//! what each of them asks for, by [matter](Tenant::matter).

use crate::limits::{
    IDLE, SHARE_OF_FREE_THREADS, THREADS, THREADS_OF_ONE, WAITING_OF_ONE, WAITING_OF_TENANT, WAITING_TASKS,
};
use derive_where::derive_where;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// For whom something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tenant {
    /// Who asks.
    pub who: u64,
    /// For what: of its threads one matter has [`THREADS_OF_ONE`] at most.
    pub matter: u64,
}

/// Something to be done by a thread of its own. Two that are equal are one, until it is done.
pub trait ExecutorTask: Eq + Hash + Send + Sync + 'static {
    /// For whom it is done.
    fn tenant(&self) -> Tenant;

    /// Threads that its matter may have at once from now on, [`THREADS_OF_ONE`] at most.
    fn threads(&self) -> usize {
        THREADS_OF_ONE
    }

    /// Does it, however long that takes.
    fn run(&self);

    /// It was done, or no thread can be had for it: says so to whoever waits. An equal one that is offered from now on is another one.
    fn end(&self);

    /// What the thread that has done it does behind that, where it takes its time.
    fn follow_up(&self) {}
}

/// What became of a task that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It will be done, and [end](Task::end).
    Taken,
    /// An equal one will.
    Known,
    /// Too many wait.
    Full,
}

type Spawn = dyn Fn(Box<dyn FnOnce() + Send>) -> io::Result<()> + Send + Sync;

/// The threads and their tasks.
pub struct Executor<T> {
    queue: Mutex<ExecutorQueue<T>>,
    more: Condvar,
    spawn: Box<Spawn>,
}

#[derive_where(Default)]
struct ExecutorQueue<T> {
    tenants: HashMap<u64, TenantQueues<T>>,
    /// Tenants that have a task for the next thread, in turn.
    schedule: VecDeque<u64>,
    /// Waiting tasks, and those that are being done.
    undone: HashSet<Arc<T>>,
    waiting: usize,
    /// How many of these a thread might begin with now, if enough others were free.
    startable: usize,
    threads: usize,
    /// Of these, with a task.
    at_work: usize,
    idle: usize,
    /// One of the threads has not begun yet.
    starting: bool,
    stopped: bool,
}

/// What one tenant has.
#[derive_where(Default)]
struct TenantQueues<T> {
    /// No map by hashes: a thread's first one asks the kernel for its secret, which is a cancellation point of the C library.
    matters: BTreeMap<u64, TaskQueue<T>>,
    /// Matters that have a task for the next thread, in turn: with one of them the tenant is among the turns.
    schedule: VecDeque<u64>,
    waiting: usize,
    /// Threads at work for it.
    threads: usize,
}

/// What one matter has.
struct TaskQueue<T> {
    waiting: VecDeque<Arc<T>>,
    /// Threads at work for it.
    threads: usize,
    /// It may have so many.
    most: usize,
    /// It is among the turns.
    is_scheduled: bool,
}

impl<T> Default for TaskQueue<T> {
    fn default() -> Self {
        TaskQueue { waiting: VecDeque::new(), threads: 0, most: THREADS_OF_ONE, is_scheduled: false }
    }
}

impl<T> TaskQueue<T> {
    fn startable(&self) -> usize {
        self.waiting.len().min(self.most.saturating_sub(self.threads))
    }
}

impl<T: ExecutorTask> ExecutorQueue<T> {
    /// Whether a thread is to be started so that one waits for the next task: it counts from now on.
    fn starts(&mut self) -> bool {
        let starts = self.idle == 0 && !self.starting && !self.stopped && self.threads < THREADS;
        if starts {
            self.starting = true;
            self.threads += 1;
        }
        starts
    }

    /// Changes a queue, and gives it its turn if it has a task then and may have a thread.
    fn change<R>(&mut self, tenant: Tenant, change: impl FnOnce(&mut TaskQueue<T>) -> R) -> R {
        let queues = self.tenants.entry(tenant.who).or_default();
        let task_queue = queues.matters.entry(tenant.matter).or_default();
        let before = (task_queue.startable(), task_queue.threads, task_queue.waiting.len());
        let outcome = change(task_queue);
        let startable = task_queue.startable();
        self.startable = self.startable + startable - before.0;
        queues.threads = queues.threads + task_queue.threads - before.1;
        self.at_work = self.at_work + task_queue.threads - before.1;
        queues.waiting = queues.waiting + task_queue.waiting.len() - before.2;
        self.waiting = self.waiting + task_queue.waiting.len() - before.2;
        if startable > 0 && !task_queue.is_scheduled {
            task_queue.is_scheduled = true;
            if queues.schedule.is_empty() {
                self.schedule.push_back(tenant.who);
            }
            queues.schedule.push_back(tenant.matter);
        } else if task_queue.waiting.is_empty() && task_queue.threads == 0 {
            queues.matters.remove(&tenant.matter);
            if queues.matters.is_empty() {
                self.tenants.remove(&tenant.who);
            }
        }
        outcome
    }

    fn take(&mut self, task: Arc<T>) -> Offer {
        if self.undone.contains(&task) {
            return Offer::Known;
        }
        let Tenant { who, matter } = task.tenant();
        let queues = self.tenants.get(&who);
        let of_matter = queues
            .and_then(|queues| queues.matters.get(&matter))
            .map_or(0, |task_queue| task_queue.waiting.len());
        let of_tenant = queues.map_or(0, |queues| queues.waiting);
        if self.waiting >= WAITING_TASKS || of_tenant >= WAITING_OF_TENANT || of_matter >= WAITING_OF_ONE {
            return Offer::Full;
        }
        self.undone.insert(task.clone());
        self.add(task);
        Offer::Taken
    }

    fn add(&mut self, task: Arc<T>) {
        self.change(task.tenant(), |task_queue| {
            task_queue.most = task.threads().min(THREADS_OF_ONE);
            task_queue.waiting.push_back(task);
        });
    }

    fn next(&mut self) -> Option<Arc<T>> {
        // As switches share what memory they have among their ports (Choudhury and Hahne, 1998: dynamic thresholds). Who has none gets one. Those
        // that are passed over have a thread each, so that they are few.
        let most = (THREADS.saturating_sub(self.at_work) / SHARE_OF_FREE_THREADS).max(1);
        let may = |who: &u64| self.tenants.get(who).is_some_and(|queues| queues.threads < most);
        let passed_over = self.schedule.iter().position(may)?;
        self.schedule.rotate_left(passed_over);
        let who = self.schedule.pop_front()?;
        let queues = self.tenants.get_mut(&who)?;
        let matter = queues.schedule.pop_front()?;
        if !queues.schedule.is_empty() {
            self.schedule.push_back(who);
        }
        self.change(Tenant { who, matter }, |task_queue| {
            task_queue.is_scheduled = false;
            let task = task_queue.waiting.pop_front()?;
            task_queue.threads += 1;
            Some(task)
        })
    }

    fn done(&mut self, task: &Arc<T>) {
        self.change(task.tenant(), |task_queue| task_queue.threads -= 1);
    }
}

impl<T: ExecutorTask> Executor<T> {
    /// With one thread, if it can be had. `spawn` starts one that runs what it is given.
    pub fn new(
        spawn: impl Fn(Box<dyn FnOnce() + Send>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let queue = ExecutorQueue { threads: 1, starting: true, ..ExecutorQueue::default() };
        let executor =
            Arc::new(Executor { queue: Mutex::new(queue), more: Condvar::new(), spawn: Box::new(spawn) });
        executor.start();
        executor
    }

    /// Takes a task on.
    pub fn offer(self: &Arc<Self>, task: T) -> Offer {
        let task = Arc::new(task);
        let mut queue = self.queue.lock();
        let offer = queue.take(task);
        // Also for one that is known: no thread could be had before, perhaps.
        if queue.startable > 0 && offer != Offer::Full {
            if queue.idle > 0 {
                drop(queue);
                self.more.notify_one();
            } else if queue.starts() {
                drop(queue);
                self.start();
            }
        }
        offer
    }

    fn start(self: &Arc<Self>) {
        let executor = self.clone();
        let Err(error) = (self.spawn)(Box::new(move || executor.work())) else { return };
        log::debug!("no thread to wait for pages: {error}");
        let mut queue = self.queue.lock();
        queue.threads -= 1;
        queue.starting = false;
        if queue.threads > 0 {
            return;
        }
        // Nobody is there to do them.
        let queues = queue.tenants.drain().flat_map(|(_, queues)| queues.matters.into_values());
        let left: Vec<Arc<T>> = queues.flat_map(|task_queue| task_queue.waiting).collect();
        queue.schedule.clear();
        queue.undone.clear();
        (queue.waiting, queue.startable) = (0, 0);
        drop(queue);
        left.iter().for_each(|task| task.end());
    }

    fn work(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        queue.starting = false;
        while !queue.stopped {
            if let Some(task) = queue.next() {
                let starts = queue.starts();
                // The end of another task may have made room for several.
                let more = queue.startable > 0 && queue.idle > 0;
                drop(queue);
                if starts {
                    self.start();
                }
                if more {
                    self.more.notify_one();
                }
                task.run();
                self.queue.lock().undone.remove(&task);
                task.end();
                task.follow_up();
                queue = self.queue.lock();
                queue.done(&task);
                continue;
            }
            queue.idle += 1;
            // One stays.
            let others = queue.idle > 1;
            let timed_out = others && self.more.wait_for(&mut queue, Duration::from_millis(IDLE)).timed_out();
            if !others {
                self.more.wait(&mut queue);
            }
            queue.idle -= 1;
            if timed_out && queue.idle > 0 && queue.schedule.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }

    /// Tasks that wait for a thread or are being done.
    #[cfg(test)]
    fn undone(&self) -> usize {
        self.queue.lock().undone.len()
    }

    /// Has idle threads end; those that are at work end when they are done.
    pub fn stop(&self) {
        self.queue.lock().stopped = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// What tests look at.
    #[derive(Default)]
    struct TaskLog {
        ran: AtomicUsize,
        ended: AtomicUsize,
        gate: AtomicBool,
    }

    struct TestTask {
        tenant: Tenant,
        number: u64,
        /// Waits until the gate is open.
        waits: bool,
        /// It waits in `end`, until the gate is open.
        ends_late: bool,
        seen: Arc<TaskLog>,
    }

    impl PartialEq for TestTask {
        fn eq(&self, other: &Self) -> bool {
            (self.tenant, self.number) == (other.tenant, other.number)
        }
    }

    impl Eq for TestTask {}

    impl Hash for TestTask {
        fn hash<H: Hasher>(&self, state: &mut H) {
            (self.tenant, self.number).hash(state);
        }
    }

    impl ExecutorTask for TestTask {
        fn tenant(&self) -> Tenant {
            self.tenant
        }

        fn run(&self) {
            while self.waits && !self.seen.gate.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.seen.ran.fetch_add(1, Ordering::SeqCst);
        }

        fn end(&self) {
            self.seen.ended.fetch_add(1, Ordering::SeqCst);
            while self.ends_late && !self.seen.gate.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn executor() -> Arc<Executor<TestTask>> {
        Executor::new(|body| std::thread::Builder::new().spawn(body).map(drop))
    }

    /// Every thread there may be is at work elsewhere.
    fn busy_executor() -> Arc<Executor<TestTask>> {
        let executor = Executor::new(|_| Ok(()));
        let mut queue = executor.queue.lock();
        (queue.threads, queue.starting) = (THREADS, false);
        drop(queue);
        executor
    }

    fn test_task(who: u64, number: u64, waits: bool, seen: &Arc<TaskLog>) -> TestTask {
        TestTask { tenant: Tenant { who, matter: 0 }, number, waits, ends_late: false, seen: seen.clone() }
    }

    fn until(what: impl Fn() -> bool) {
        for _ in 0..10_000 {
            if what() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it did not come to that");
    }

    /// JBMT-5.
    #[test]
    fn who_asks_for_what_never_comes_leaves_threads_to_others() {
        let (executor, seen) = (executor(), Arc::new(TaskLog::default()));
        for number in 0..1000 {
            assert_eq!(executor.offer(test_task(1, number, true, &seen)), Offer::Taken);
        }
        for number in 0..1000 {
            assert_eq!(executor.offer(test_task(2, number, false, &seen)), Offer::Taken);
        }
        until(|| seen.ran.load(Ordering::SeqCst) == 1000);
        let task_queue = |queue: &ExecutorQueue<TestTask>| queue.tenants[&1].threads;
        assert_eq!(task_queue(&executor.queue.lock()), THREADS_OF_ONE);
        seen.gate.store(true, Ordering::SeqCst);
        until(|| seen.ran.load(Ordering::SeqCst) == 2000);
        until(|| executor.queue.lock().tenants.is_empty());
        executor.stop();
        until(|| executor.queue.lock().threads == 0);
    }

    /// So many tenants, each about so many matters, have more that never comes than there are threads: what another one asks for is done.
    fn leave_threads(tenants: u64, matters: u64) {
        let (executor, seen) = (executor(), Arc::new(TaskLog::default()));
        let about = |who: u64, matter: u64, number: u64, waits: bool| TestTask {
            tenant: Tenant { who, matter },
            ..test_task(who, who << 32 | matter << 16 | number, waits, &seen)
        };
        for (who, matter) in (0..tenants).flat_map(|who| (0..matters).map(move |matter| (who, matter))) {
            for number in 0..THREADS_OF_ONE as u64 {
                assert_eq!(executor.offer(about(who, matter, number, true)), Offer::Taken);
            }
        }
        let at_work = |executor: &Executor<TestTask>| executor.queue.lock().at_work;
        until(|| at_work(&executor) >= THREADS / SHARE_OF_FREE_THREADS / 2);
        for number in 0..1000 {
            assert_eq!(executor.offer(about(tenants, 0, number, false)), Offer::Taken);
        }
        until(|| seen.ran.load(Ordering::SeqCst) == 1000);
        assert!(at_work(&executor) <= THREADS - SHARE_OF_FREE_THREADS);
        seen.gate.store(true, Ordering::SeqCst);
        until(|| executor.undone() == 0);
        until(|| executor.queue.lock().tenants.is_empty());
        assert_eq!(executor.queue.lock().startable, 0);
        assert_eq!(at_work(&executor), 0);
        executor.stop();
        until(|| executor.queue.lock().threads == 0);
    }

    #[test]
    fn many_who_ask_for_what_never_comes_leave_threads_to_others() {
        leave_threads(2 * (THREADS / THREADS_OF_ONE) as u64, 1);
        leave_threads(4, 40);
    }

    #[test]
    fn who_asks_for_much_that_never_comes_leaves_threads_to_others() {
        leave_threads(1, 2 * THREADS as u64);
    }

    #[test]
    fn stuck_matter_leaves_threads_to_others() {
        let (executor, seen) = (executor(), Arc::new(TaskLog::default()));
        let about = |matter: u64, number: u64, waits: bool| TestTask {
            tenant: Tenant { who: 1, matter },
            ..test_task(1, number, waits, &seen)
        };
        for number in 0..1000 {
            assert_eq!(executor.offer(about(1, number, true)), Offer::Taken);
        }
        until(|| executor.queue.lock().at_work == THREADS_OF_ONE);
        for number in 1000..2000 {
            assert_eq!(executor.offer(about(2, number, false)), Offer::Taken);
        }
        until(|| seen.ran.load(Ordering::SeqCst) == 1000);
        seen.gate.store(true, Ordering::SeqCst);
        until(|| executor.undone() == 0);
        executor.stop();
    }

    #[test]
    fn a_thread_waits_for_the_next_task_and_what_is_too_many_ends() {
        let (executor, seen) = (executor(), Arc::new(TaskLog::default()));
        let idle = |executor: &Executor<TestTask>| {
            let queue = executor.queue.lock();
            (queue.threads, queue.idle)
        };
        until(|| idle(&executor) == (1, 1));
        for number in 0..3 {
            executor.offer(test_task(1, number, true, &seen));
            let at_work = number as usize + 1;
            until(|| idle(&executor) == (at_work + 1, 1));
        }
        seen.gate.store(true, Ordering::SeqCst);
        until(|| idle(&executor) == (1, 1));
        executor.stop();
        until(|| idle(&executor) == (0, 0));
    }

    #[test]
    fn pending_page_task_is_not_repeated() {
        let (executor, seen) = (executor(), Arc::new(TaskLog::default()));
        assert_eq!(executor.offer(test_task(1, 1, true, &seen)), Offer::Taken);
        for _ in 0..3 {
            assert_eq!(executor.offer(test_task(1, 1, true, &seen)), Offer::Known);
            std::thread::sleep(Duration::from_millis(2));
        }
        seen.gate.store(true, Ordering::SeqCst);
        until(|| executor.undone() == 0);
        assert_eq!(executor.offer(test_task(1, 1, true, &seen)), Offer::Taken);
        until(|| seen.ran.load(Ordering::SeqCst) == 2);
        executor.stop();
    }

    #[test]
    fn ended_page_task_may_repeat() {
        let (executor, seen) = (executor(), Arc::new(TaskLog::default()));
        let late = || TestTask { ends_late: true, ..test_task(1, 1, false, &seen) };
        assert_eq!(executor.offer(late()), Offer::Taken);
        until(|| seen.ended.load(Ordering::SeqCst) == 1);
        assert_eq!(executor.offer(late()), Offer::Taken);
        until(|| seen.ended.load(Ordering::SeqCst) == 2);
        seen.gate.store(true, Ordering::SeqCst);
        executor.stop();
    }

    #[test]
    fn tenants_are_served_round_robin() {
        let seen = Arc::new(TaskLog::default());
        let executor = busy_executor();
        let mut queue = executor.queue.lock();
        for (tenant, number) in [(1, 1), (1, 2), (1, 3), (2, 4), (3, 5), (2, 6)] {
            queue.add(Arc::new(test_task(tenant, number, false, &seen)));
        }
        let order: Vec<u64> = std::iter::from_fn(|| queue.next()).map(|task| task.number).collect();
        assert_eq!(order, [1, 4, 5, 2, 6, 3]);
        assert_eq!((queue.waiting, queue.startable), (0, 0));
    }

    #[test]
    fn thread_failure_ends_page_tasks() {
        let seen = Arc::new(TaskLog::default());
        let executor = Executor::new(|_| Err(io::ErrorKind::OutOfMemory.into()));
        for number in 0..3 {
            assert_eq!(executor.offer(test_task(1, number, false, &seen)), Offer::Taken);
        }
        assert_eq!((seen.ran.load(Ordering::SeqCst), seen.ended.load(Ordering::SeqCst)), (0, 3));
        assert_eq!(executor.undone(), 0);
    }

    /// In the place of JBMT-6's remote credits.
    #[test]
    fn what_is_too_much_is_not_taken() {
        let (executor, seen) = (busy_executor(), Arc::new(TaskLog::default()));
        for number in 0..WAITING_OF_ONE as u64 {
            assert_eq!(executor.offer(test_task(1, number, false, &seen)), Offer::Taken);
        }
        assert_eq!(executor.offer(test_task(1, WAITING_OF_ONE as u64, false, &seen)), Offer::Full);
        assert_eq!(executor.offer(test_task(1, 0, false, &seen)), Offer::Known, "that needs no room");
        // What one tenant has too much leaves room to the others.
        let others = (WAITING_TASKS / WAITING_OF_ONE) as u64;
        for (tenant, number) in
            (2..=others).flat_map(|tenant| (0..WAITING_OF_ONE as u64).map(move |n| (tenant, n)))
        {
            assert_eq!(executor.offer(test_task(tenant, number, false, &seen)), Offer::Taken);
        }
        assert_eq!(executor.offer(test_task(others + 1, 0, false, &seen)), Offer::Full);
    }

    #[test]
    fn tenant_queue_is_bounded() {
        let (executor, seen) = (busy_executor(), Arc::new(TaskLog::default()));
        let about = |matter: u64, number| TestTask {
            tenant: Tenant { who: 1, matter },
            ..test_task(1, number, false, &seen)
        };
        for number in 0..WAITING_OF_TENANT as u64 {
            assert_eq!(executor.offer(about(number % 100, number)), Offer::Taken);
        }
        assert_eq!(executor.offer(about(100, u64::MAX)), Offer::Full);
        assert_eq!(executor.offer(test_task(2, 0, false, &seen)), Offer::Taken);
    }

    #[test]
    fn who_asks_again_has_a_thread_where_there_was_none_before() {
        let seen = Arc::new(TaskLog::default());
        let tries = AtomicUsize::new(0);
        let executor = Executor::new(move |body| match tries.fetch_add(1, Ordering::SeqCst) {
            1 | 2 => Err(io::ErrorKind::OutOfMemory.into()),
            _ => std::thread::Builder::new().spawn(body).map(drop),
        });
        assert_eq!(executor.offer(test_task(1, 1, true, &seen)), Offer::Taken);
        let nobody_else =
            |queue: &ExecutorQueue<TestTask>| queue.startable == 0 && queue.threads == 1 && !queue.starting;
        until(|| nobody_else(&executor.queue.lock()));
        assert_eq!(executor.offer(test_task(1, 2, false, &seen)), Offer::Taken);
        assert_eq!(seen.ran.load(Ordering::SeqCst), 0, "the only thread waits");
        assert_eq!(executor.offer(test_task(1, 2, false, &seen)), Offer::Known);
        until(|| seen.ran.load(Ordering::SeqCst) == 1);
        seen.gate.store(true, Ordering::SeqCst);
        until(|| executor.undone() == 0);
        executor.stop();
    }
}
