//! The text of rules, and which of them fire.

use pagewire_failures::{
    Action, Counters, EventOpcode, FailureEvent, ObjectKind, ObjectOrdinal, Point, Record, RuleEvent, Rules,
    Verb, WorkStatus,
};
use proptest::prelude::*;

fn rules(text: &str) -> Rules {
    Rules::parse(text, "client").unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    Rules::parse(text, "client").expect_err(text).to_string()
}

fn qp(ordinal: u32) -> Option<ObjectOrdinal> {
    Some(ObjectOrdinal { kind: ObjectKind::QueuePair, ordinal })
}

fn call(verb: Verb, thread: u32) -> FailureEvent<'static> {
    FailureEvent { thread: Some(thread), ..FailureEvent::at(Point::Call(verb)) }
}

fn request(thread: u32, queue_pair: u32, opcode: EventOpcode) -> FailureEvent<'static> {
    FailureEvent {
        thread: Some(thread),
        object: qp(queue_pair),
        opcode: Some(opcode),
        ..FailureEvent::at(Point::Request)
    }
}

/// Which of a series of events fire, from 1.
fn firing<'a>(rules: &Rules, events: impl IntoIterator<Item = FailureEvent<'a>>) -> Vec<usize> {
    let mut counters = Counters::default();
    let decided = events.into_iter().map(|event| rules.decide(&event, &mut counters).is_some());
    decided.enumerate().filter(|(_, fires)| *fires).map(|(place, _)| place + 1).collect()
}

#[test]
fn third_registration_fails() {
    let rules = rules("verb=ibv_reg_mr nth=3 errno=ENOMEM");
    assert_eq!(firing(&rules, [call(Verb::RegMr, 0); 7]), [3]);
    assert_eq!(firing(&rules, [call(Verb::DeregMr, 0); 7]), []);
}

#[test]
fn calls_count_for_each_thread() {
    let rules = rules("verb=ibv_reg_mr nth=2 errno=ENOMEM");
    let threads = [0, 1, 0, 1, 0].map(|thread| call(Verb::RegMr, thread));
    assert_eq!(firing(&rules, threads), [3, 4]);
    let of_one = Rules::parse("verb=ibv_reg_mr thread=1 nth=2 errno=ENOMEM", "").unwrap();
    assert_eq!(firing(&of_one, threads), [4]);
}

#[test]
fn posts_count_for_each_queue_pair() {
    let rules = rules("status=IBV_WC_RETRY_EXC_ERR nth=2");
    let send = |queue_pair| request(0, queue_pair, EventOpcode::Send);
    assert_eq!(firing(&rules, [send(0), send(1), send(1), send(0), send(0)]), [3, 4]);
}

#[test]
fn every_and_times_limit() {
    let rules = rules("verb=ibv_reg_mr every=3 times=2 errno=12");
    assert_eq!(firing(&rules, [call(Verb::RegMr, 0); 12]), [3, 6]);
}

#[test]
fn rules_of_other_roles_do_not_fire() {
    let rules = rules("verb=ibv_reg_mr role=server errno=ENOMEM");
    assert_eq!(firing(&rules, [call(Verb::RegMr, 0); 3]), []);
    assert!(!rules.concern(|_| true));
}

#[test]
fn first_of_two_rules_decides_and_both_count() {
    let rules = rules("verb=ibv_reg_mr nth=2 errno=ENOMEM; verb=ibv_reg_mr every=2 errno=EIO");
    let mut counters = Counters::default();
    let actions: Vec<Option<Action>> = (0..4)
        .map(|_| rules.decide(&call(Verb::RegMr, 0), &mut counters).map(|decision| decision.action))
        .collect();
    assert_eq!(actions, [None, Some(Action::Errno(12)), None, Some(Action::Errno(5))]);
}

#[test]
fn status_passes_over_requests_that_cannot_end_so() {
    let rules = rules("status=IBV_WC_RNR_RETRY_EXC_ERR nth=1");
    let events = [request(0, 0, EventOpcode::RdmaWrite), request(0, 0, EventOpcode::Send)];
    assert_eq!(firing(&rules, events), [2]);
}

#[test]
fn stack_is_captured_on_demand() {
    let asked = std::cell::Cell::new(0);
    let stack = || {
        asked.set(asked.get() + 1);
        0xAB
    };
    let event = FailureEvent { stack: &stack, ..call(Verb::RegMr, 0) };
    assert_eq!(firing(&rules("verb=ibv_reg_mr errno=EIO"), [event]), [1]);
    assert_eq!(asked.get(), 0);
    assert_eq!(firing(&rules("verb=ibv_reg_mr stack=ab errno=EIO"), [event]), [1]);
    assert_eq!(firing(&rules("verb=ibv_reg_mr stack=ac errno=EIO"), [event]), []);
    assert_eq!(firing(&rules("verb=ibv_dereg_mr stack=ac errno=EIO"), [event]), []);
    assert_eq!(asked.get(), 2);
}

#[test]
fn errors_say_what_would_be_right() {
    let said = [
        ("verb=ibv_reg_mrs errno=EIO", "ibv_reg_mrs"),
        ("verb=reg_mr errno=EIO", "perhaps ibv_reg_mr"),
        ("verb=ibv_reg_mr errno=EOOPS", "ENOMEM"),
        ("verb=ibv_reg_mr", "add errno, status, delay"),
        ("errno=EIO", "add verb="),
        ("verb=ibv_reg_mr errno=EIO action=kill", "one of errno"),
        ("verb=ibv_reg_mr errno=EIO errno=EIO", "said twice"),
        ("verb=ibv_reg_mr nth=0 errno=EIO", "counted from 1"),
        ("verb=ibv_reg_mr nth=1 every=2 errno=EIO", "one of nth"),
        ("verb=ibv_reg_mr probability=2 errno=EIO", "from 0 to 1"),
        ("verb=ibv_ack_cq_events errno=EIO", "returns nothing"),
        ("verb=ibv_reg_mr frequency=2 errno=EIO", "'frequency' is no key"),
        ("verb errno=EIO", "write key=value"),
        ("on=call errno=EIO", "none of request, completion"),
        ("on=completion status=IBV_WC_RETRY_EXC_ERR", "write on=request"),
        ("on=completion delay=5", "such as 100us"),
        ("seed=x; verb=ibv_reg_mr errno=EIO", "seed 'x'"),
        ("on=packet thread=1 action=lose", "events on packet have no thread: they are selected by role, qp"),
        ("on=packet action=drop", "none of kill, stop, lose"),
        ("on=packet opcode=RECV action=lose", "no packet has the opcode RECV"),
        ("after=1ms cq=0 event=IBV_EVENT_QP_FATAL", "not about a cq"),
        ("after=5ms nth=2 event=IBV_EVENT_PORT_ERR", "comes once"),
        ("verb=ibv_reg_mr errno=EIO for=2s", "action=stop"),
        ("verb=ibv_poll_cq every=2 errno=EIO", "use on=completion"),
        ("message=REQ qp=1 cq=2 action=lose", "one of qp, cq and srq"),
        ("message=REQ qp=1 action=lose", "events on message have no qp"),
        ("on=page qp=0 delay=1ms", "events on page have no qp"),
        ("on=completion cq=0 delay=1ms", "events on completion have no cq"),
        ("on=request cq=0 action=kill", "events on request have no cq"),
        ("on=packet srq=0 action=lose", "events on packet have no srq"),
        ("verb=ibv_reg_mr qp_num=5 errno=ENOMEM", "have no qp_num"),
        (
            "verb=ibv_reg_mr qp=5 errno=ENOMEM",
            "calls of ibv_reg_mr have no qp: they are selected by role, thread, stack",
        ),
        (
            "verb=ibv_post_send cq=0 errno=ENOMEM",
            "calls of ibv_post_send have no cq: they are selected by role, thread, stack, qp",
        ),
        ("verb=ibv_query_gid qp=1 event=IBV_EVENT_QP_FATAL", "calls of ibv_query_gid have no qp"),
        ("verb=ibv_create_qp srq=0 errno=ENOMEM", "calls of ibv_create_qp have no srq"),
        ("verb=ibv_post_send wr_id=7 errno=ENOMEM", "calls of ibv_post_send have no wr_id"),
        ("verb=ibv_post_send opcode=SEND errno=ENOMEM", "calls of ibv_post_send have no opcode"),
        ("after=1s thread=0 action=kill", "events on time have no thread"),
        ("on=page qp_num=5 delay=1ms", "have no qp_num"),
        ("nak=rnr opcode=0x04", "takes the place of an ACKNOWLEDGE"),
        ("on=completion opcode=SEND_WITH_IMM delay=1ms", "no completion has the opcode"),
    ];
    for (text, expected) in said {
        let told = refusal(text);
        assert!(told.contains(expected), "{text}: {told}");
    }
    assert!(
        refusal("verb=ibv_reg_mr errno=EIO\n# a comment\nverb=ibv_reg_mr nth=x errno=EIO")
            .starts_with("rule 2: ")
    );
}

/// What the specification forbids (volume 1, section 10.10.3 and table 119).
#[test]
fn forbidden_completions_are_refused() {
    for (opcode, status) in [
        ("SEND", "IBV_WC_REM_ACCESS_ERR"),
        ("SEND", "IBV_WC_BAD_RESP_ERR"),
        ("RDMA_WRITE", "IBV_WC_RNR_RETRY_EXC_ERR"),
        ("RDMA_READ", "IBV_WC_RNR_RETRY_EXC_ERR"),
        ("RECV", "IBV_WC_RETRY_EXC_ERR"),
        ("RECV", "IBV_WC_REM_ACCESS_ERR"),
    ] {
        let told = refusal(&format!("opcode={opcode} status={status}"));
        assert!(told.contains("the specification knows no"), "{told}");
    }
    for (opcode, status) in [
        ("IBV_WR_SEND", "IBV_WC_RNR_RETRY_EXC_ERR"),
        ("RDMA_READ", "IBV_WC_BAD_RESP_ERR"),
        ("RECV", "IBV_WC_LOC_LEN_ERR"),
    ] {
        rules(&format!("opcode={opcode} status={status}"));
    }
}

#[test]
fn each_action_has_a_point() {
    for text in [
        "verb=rdma_connect errno=ECONNREFUSED",
        "status=IBV_WC_RETRY_EXC_ERR opcode=RDMA_WRITE qp=0 nth=5",
        "on=completion delay=5ms qp_num=0x111",
        "verb=ibv_post_send nth=10 event=IBV_EVENT_PORT_ERR",
        "after=20ms event=IBV_EVENT_DEVICE_FATAL",
        "on=packet opcode=ACKNOWLEDGE nth=3 action=lose",
        "on=packet opcode=0x0a action=corrupt",
        "nak=rnr nth=2",
        "on=packet psn=17 peer=10.0.0.2 delay=2ms",
        "on=page nth=1 delay=20ms",
        "on=page nth=1 action=lose",
        "message=REQ action=reject",
        "message=REP action=lose nth=1",
        "verb=ibv_post_send nth=3 action=kill",
        "on=completion nth=3 action=stop for=50ms",
        "seed=7; verb=ibv_reg_mr probability=0.5 errno=ENOMEM",
    ] {
        rules(text);
    }
}

#[test]
fn events_have_objects() {
    let decided = rules("verb=ibv_post_send qp=1 nth=2 event=IBV_EVENT_QP_FATAL");
    let post = |queue_pair| FailureEvent { object: qp(queue_pair), ..call(Verb::PostSend, 0) };
    let mut counters = Counters::default();
    let fired: Vec<_> =
        [0, 1, 0, 1].iter().filter_map(|place| decided.decide(&post(*place), &mut counters)).collect();
    assert_eq!(fired.len(), 1);
    assert_eq!(fired[0].action, Action::Event(RuleEvent::QueuePairFatal));
    assert_eq!(
        fired[0].record.line(9),
        "{\"rule\":1,\"role\":\"client\",\"pid\":9,\"thread\":0,\"event\":\"ibv_post_send\",\"object\":\"qp=1\",\"ordinal\":2,\"after\":null,\"action\":\"event=IBV_EVENT_QP_FATAL\"}\n"
    );
}

#[test]
fn all_rules_of_a_time_fire() {
    let rules = rules(
        "after=5ms event=IBV_EVENT_PORT_ERR; after=5ms event=IBV_EVENT_GID_CHANGE; after=6ms action=kill",
    );
    let mut counters = Counters::default();
    let event = FailureEvent { after: Some(5_000_000), ..FailureEvent::at(Point::Time) };
    let actions: Vec<_> =
        (0..3).map(|_| rules.decide(&event, &mut counters).map(|decision| decision.action)).collect();
    let expected = [RuleEvent::PortError, RuleEvent::GidChange].map(|event| Some(Action::Event(event)));
    assert_eq!(actions, [&expected[..], &[None]].concat());
}

/// What each of four threads does: registrations, and posts to two queue pairs of its own.
fn program(thread: u32) -> Vec<FailureEvent<'static>> {
    (0..40)
        .map(|step| match step % 4 {
            0 => call(Verb::RegMr, thread),
            1 => call(Verb::DeregMr, thread),
            other => request(thread, 2 * thread + other - 2, EventOpcode::RdmaWrite),
        })
        .collect()
}

const RANDOM_RULES: &str = "verb=ibv_reg_mr probability=0.3 errno=ENOMEM; verb=ibv_dereg_mr every=7 errno=EBUSY; \
                            status=IBV_WC_RETRY_EXC_ERR probability=0.1 times=3";

/// The logs of all threads, which run at the same time as they will.
fn logs_of_threads(seed: u64) -> Vec<Vec<Record>> {
    let rules = rules(&format!("seed={seed}; {RANDOM_RULES}"));
    let counters = std::sync::Mutex::new(Counters::default());
    std::thread::scope(|scope| {
        let run = |thread| {
            let (rules, counters) = (&rules, &counters);
            scope.spawn(move || {
                let decide = |event| {
                    let decision = rules.decide(&event, &mut counters.lock().unwrap());
                    std::thread::yield_now();
                    decision.map(|decision| decision.record)
                };
                program(thread).into_iter().filter_map(decide).collect::<Vec<Record>>()
            })
        };
        let threads: Vec<_> = (0..4).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn seed_gives_each_thread_equal_logs() {
    let mut different = std::collections::HashSet::new();
    for seed in 0..100 {
        let logs = logs_of_threads(seed);
        assert_eq!(logs, logs_of_threads(seed), "seed {seed}");
        different.insert(format!("{logs:?}"));
    }
    assert!(different.len() > 90, "the seeds make no difference: {}", different.len());
}

fn text_of(record: &Record) -> String {
    let place = match Verb::from_name(record.event) {
        Some(_) => format!("verb={}", record.event),
        None => format!("on={}", record.event),
    };
    let thread = record.thread.map_or(String::new(), |thread| format!(" thread={thread}"));
    let object = record.object.map_or(String::new(), |object| format!(" {object}"));
    format!("{place} role={}{thread}{object} ordinal={} {}", record.role, record.ordinal, record.action)
}

/// A log, made into rules, fires at the events of the log and nowhere else.
#[test]
fn log_is_replayed() {
    for seed in 0..20 {
        let events: Vec<_> = (0..4).flat_map(program).collect();
        let run = |rules: &Rules| {
            let mut counters = Counters::default();
            let records = events.iter().filter_map(|event| rules.decide(event, &mut counters));
            records.map(|decision| text_of(&decision.record)).collect::<Vec<String>>()
        };
        let log = run(&rules(&format!("seed={seed}; {RANDOM_RULES}")));
        assert!(!log.is_empty());
        assert_eq!(run(&rules(&log.join(";"))), log, "seed {seed}");
    }
}

#[test]
fn statuses_and_names_agree() {
    assert_eq!(WorkStatus::RetryExceeded as u32, 12);
    assert_eq!(WorkStatus::RnrRetryExceeded.to_string(), "IBV_WC_RNR_RETRY_EXC_ERR");
}

proptest! {
    /// No text makes the parser panic, and what it takes it takes again as it writes it.
    #[test]
    fn any_text_is_read(text in "[a-z_=;# 0-9A-Z.]{0,80}") {
        let _ = Rules::parse(&text, "");
    }

    #[test]
    fn rules_are_read_as_they_are_written(
        verb in proptest::sample::select(vec!["ibv_reg_mr", "ibv_post_send", "rdma_connect"]),
        thread in proptest::option::of(0u32..100),
        nth in 1u64..1000,
        times in proptest::option::of(1u64..9),
        errno in 1i32..130,
    ) {
        let thread = thread.map_or(String::new(), |thread| format!(" thread={thread}"));
        let times = times.map_or(String::new(), |times| format!(" times={times}"));
        let read = rules(&format!("verb={verb}{thread} nth={nth}{times} errno={errno}"));
        let written: Vec<String> = read.own().map(ToString::to_string).collect();
        prop_assert_eq!(rules(&written.join(";")), read);
    }

    /// A probability is met: of many events about as many as it says.
    #[test]
    fn probability_is_kept(seed: u64) {
        let rules = rules(&format!("seed={seed}; verb=ibv_reg_mr probability=0.25 errno=EIO"));
        let fired = firing(&rules, vec![call(Verb::RegMr, 0); 2000]).len();
        prop_assert!((380..620).contains(&fired), "{fired}");
    }
}
