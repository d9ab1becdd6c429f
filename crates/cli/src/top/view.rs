//! The display: what stands where. It draws what it is given and keeps nothing but what the keys have chosen.

use super::board::{Board, Key, Order, Past, Watched};
use super::measures::{Measure, fault_latency, short, short_time};
use super::plain::queue_pair_cells;
use crate::limits::TOP_HISTORY;
use crate::output::connections::{self, ConnectionManager};
use crate::output::watched::{COLUMNS, SHOWN_PAGES, Watch};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the keys do, as the help shows it.
const KEYS: [(&str, &str); 9] = [
    ("Up, Down", "choose a process"),
    ("Left, Right", "sort by another column"),
    ("r", "sort the other way round"),
    ("PageUp, PageDown", "scroll the queue pairs"),
    ("Home, End", "the first, the last queue pair"),
    ("p, Space", "pause, and go on"),
    ("?", "this help"),
    ("Esc", "close the help"),
    ("q, Ctrl-C", "quit"),
];

/// Of a column with a rate; and of one with a longer heading, such as one that says how it is sorted.
const RATE_WIDTH: u16 = 9;
const WIDE_RATE_WIDTH: u16 = 10;

/// Columns below which the display leaves out what says least.
const NARROW: u16 = 72;

/// The highest bar that the chart can calculate with.
const HIGHEST: u64 = 1 << 48;

/// What the keys have chosen.
#[derive(Debug, Default)]
pub struct View {
    /// The process whose queue pairs are shown; the first where there is none.
    pub chosen: Option<Key>,
    /// The first queue pair that is shown.
    pub first_queue_pair: usize,
    /// Nothing is asked.
    pub paused: bool,
    /// The help is shown.
    pub help: bool,
    /// Whether colours may be used.
    pub colours: bool,
    /// Queue pairs that have room; known once drawn.
    pub room: usize,
}

/// What stands in the lines at the top and at the bottom.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    /// Between two looks.
    pub interval: Duration,
    /// Since the board began.
    pub now: Duration,
    /// Something that went wrong.
    pub trouble: Option<&'a str>,
}

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, board: &Board, view: &mut View, status: Status<'_>) {
    let rows = board.rows();
    let chosen =
        view.chosen.as_ref().and_then(|key| rows.iter().position(|(row, _)| *row == key)).unwrap_or(0);
    let height = frame.area().height;
    // Head and border; the chosen process needs the rest.
    let table = (rows.len() as u16).saturating_add(1).min((height / 3).max(2));
    let [head, processes, detail, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(table),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, board, view, rows.len(), status);
    draw_processes(frame, processes, board, view, (&rows, chosen));
    match rows.get(chosen) {
        Some((_, watched)) => draw_process(frame, detail, view, watched, status.now),
        None => draw_nothing(frame, detail, board),
    }
    let foot_text = match status.trouble {
        Some(trouble) => Span::styled(trouble, view.bad()),
        None => Span::raw(keys_line(foot.width)),
    };
    frame.render_widget(Line::from(foot_text), foot);
    if view.help {
        draw_help(frame);
    }
}

/// As many of the keys as a line of this width shows whole.
fn keys_line(width: u16) -> String {
    const PARTS: [&str; 6] =
        ["q quit", "? help", "p pause", "Up/Down process", "Left/Right sort", "PgUp/PgDn queue pairs"];
    let mut line = String::new();
    for part in PARTS {
        let gap = if line.is_empty() { "" } else { "  " };
        if line.len() + gap.len() + part.len() > usize::from(width) {
            break;
        }
        line = line + gap + part;
    }
    line
}

impl View {
    fn coloured(&self, color: Color) -> Style {
        if self.colours { Style::new().fg(color) } else { Style::new() }
    }

    fn bad(&self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }
}

fn heading() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn draw_head(
    frame: &mut Frame<'_>,
    area: Rect,
    board: &Board,
    view: &View,
    count: usize,
    status: Status<'_>,
) {
    let processes = if count == 1 { "process" } else { "processes" };
    let mut spans = vec![
        Span::styled("pagewire top", heading()),
        Span::raw(format!("  {count} {processes}, every {} s", status.interval.as_secs_f64())),
    ];
    if board.foreign() > 0 {
        spans.push(Span::raw(format!(", {} of other users not shown", board.foreign())));
    }
    if view.paused {
        spans.push(Span::styled("  PAUSED", view.coloured(Color::Yellow).add_modifier(Modifier::BOLD)));
    }
    frame.render_widget(Line::from(spans), area);
}

fn right(text: String) -> Line<'static> {
    Line::from(text).alignment(Alignment::Right)
}

fn draw_processes(
    frame: &mut Frame<'_>,
    area: Rect,
    board: &Board,
    view: &View,
    (rows, chosen): (&[(&Key, &Watched)], usize),
) {
    let measures = fitting(area.width, 20, RATE_WIDTH);
    let shown = |order: &Order| !matches!(order, Order::Rate(measure) if !measures.contains(measure));
    let head = Order::all().into_iter().filter(shown).map(|order| {
        let title = match order {
            Order::Pid => "PID",
            Order::Program => "program",
            Order::Rate(measure) => measure.title(),
        };
        let sorted = order == board.order;
        let title = if sorted { format!("{title}{}", arrow(board)) } else { title.to_owned() };
        let style = if sorted { heading().add_modifier(Modifier::UNDERLINED) } else { heading() };
        let alignment = if order == Order::Program { Alignment::Left } else { Alignment::Right };
        Line::styled(title, style).alignment(alignment)
    });
    let head = Row::new(head);
    let lines = rows.iter().map(|(_, watched)| {
        let mut cells = vec![right(watched.pid.to_string()), Line::raw(watched.program().to_owned())];
        cells.extend(measures.iter().map(|measure| right(short(watched.rate(*measure)))));
        let style = if watched.silence.is_some() { view.bad() } else { Style::new() };
        Row::new(cells).style(style)
    });
    let widths = [Constraint::Length(7), Constraint::Min(11)].into_iter();
    let sorted = |measure: &Measure| board.order == Order::Rate(*measure);
    let width = |measure| Constraint::Length(if sorted(measure) { WIDE_RATE_WIDTH } else { RATE_WIDTH });
    let widths = widths.chain(measures.iter().map(width));
    let table = Table::new(lines, widths)
        .header(head)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected((!rows.is_empty()).then_some(chosen));
    frame.render_stateful_widget(table, area, &mut state);
}

/// The measures that a table has room for, beside so many places of other columns.
fn fitting(width: u16, others: u16, each: u16) -> Vec<Measure> {
    /// Those without which the others say least, first.
    const BY_WEIGHT: [Measure; 6] = [
        Measure::Faults,
        Measure::Bytes,
        Measure::Packets,
        Measure::Operations,
        Measure::Stashed,
        Measure::Retransmissions,
    ];
    let room = usize::from(width.saturating_sub(others) / (each + 1)).clamp(1, BY_WEIGHT.len());
    Measure::ALL.into_iter().filter(|measure| BY_WEIGHT[..room].contains(measure)).collect()
}

/// Numbers begin with the largest, names and PIDs with the smallest, unless it is turned round.
fn arrow(board: &Board) -> &'static str {
    let falls = matches!(board.order, Order::Rate(_)) != board.reversed;
    if falls { "\u{2193}" } else { "\u{2191}" }
}

fn draw_nothing(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let missing = board.missing();
    let text = if missing.is_empty() {
        "No process in this network namespace has a Pagewire device open (start one: pagewire run -- PROGRAM).".to_owned()
    } else {
        format!("No process answers to {}.", missing.join(", "))
    };
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
}

fn draw_process(frame: &mut Frame<'_>, area: Rect, view: &mut View, watched: &Watched, now: Duration) {
    let path = if area.width < NARROW { "path" } else { "path asked for" };
    let choice = watched.text("path_choice").map(|choice| format!("  {path}: {choice}"));
    let faults = watched.text("page_faults").map(|choice| format!("  page faults: {choice}"));
    let title = Line::from(vec![
        Span::styled(format!(" {} (PID {})", watched.program(), watched.pid), heading()),
        Span::raw([choice, faults].into_iter().flatten().collect::<String>()),
        Span::raw(" "),
    ]);
    let block = Block::new().borders(Borders::TOP).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let charts = if inner.height >= 14 { 4 } else { 0 };
    let watch = Watch::of(&watched.report.process);
    // A title, a heading and pages, where the queue pairs keep most of the display.
    let pages =
        watch.map_or(0, |watch| (watch.pages().len().min(SHOWN_PAGES) as u16 + 2).min(inner.height / 3));
    let manager = ConnectionManager::of(&watched.report.process);
    let connections = manager.map_or(0, |manager| connection_lines(manager).min(inner.height / 3));
    let [notes, charts, queue_pairs, connections, pages] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(charts),
        Constraint::Fill(1),
        Constraint::Length(connections),
        Constraint::Length(pages),
    ])
    .areas(inner);
    if let Some(manager) = manager {
        draw_connections(frame, connections, view, manager);
    }
    if let Some(watch) = watch {
        draw_pages(frame, pages, watch);
    }
    let (notes_text, style) = match &watched.silence {
        Some(silence) => (silence.clone(), view.bad()),
        None => (growing(watched), Style::new()),
    };
    frame.render_widget(Paragraph::new(notes_text).style(style).wrap(Wrap { trim: true }), notes);
    let buckets = fault_latency(watched.report.process.get("fault_latency"));
    // Three titles are too long for a narrow display.
    let is_left_out = buckets.is_empty() || charts.width < NARROW;
    let histogram = if is_left_out { Constraint::Length(0) } else { Constraint::Fill(1) };
    let [faults, bytes, latency] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1), histogram]).spacing(2).areas(charts);
    let chart = |measure: Measure, of: fn(&Past) -> f64| Chart { measure, of, now };
    chart(Measure::Faults, |past| past.faults).draw(frame, faults, watched, view.coloured(Color::Yellow));
    chart(Measure::Bytes, |past| past.bytes).draw(frame, bytes, watched, view.coloured(Color::Green));
    draw_latency(frame, latency, &buckets, view.coloured(Color::Cyan));
    draw_queue_pairs(frame, queue_pairs, view, watched);
}

/// Refusals that the display shows.
const SHOWN_REFUSALS: usize = 3;

/// Lines that the connection manager would have: a title, refusals, a heading and IDs.
fn connection_lines(manager: ConnectionManager<'_>) -> u16 {
    let refusals = manager.refusals(Duration::ZERO).take(SHOWN_REFUSALS).count();
    u16::try_from(manager.ids().count() + refusals + 2).unwrap_or(u16::MAX)
}

/// What was refused last, and the IDs of the connection manager.
fn draw_connections(frame: &mut Frame<'_>, area: Rect, view: &View, manager: ConnectionManager<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let refusals =
        manager.refusals(now).take(SHOWN_REFUSALS).map(|refusal| Line::styled(refusal, view.bad()));
    let lines: Vec<Line<'_>> = std::iter::once(Line::raw(manager.sentence())).chain(refusals).collect();
    let height = Constraint::Length(lines.len() as u16);
    let [title, table] = Layout::vertical([height, Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(lines), title);
    let widths = [5, 5, 22, 21, 21, 8, 8].map(Constraint::Length);
    let head = Row::new(connections::COLUMNS).style(heading());
    let rows = manager.ids().take(usize::from(table.height)).map(Row::new);
    frame.render_widget(Table::new(rows, widths).header(head), table);
}

/// The pages with the most accesses of peers.
fn draw_pages(frame: &mut Frame<'_>, area: Rect, watch: Watch<'_>) {
    let [title, table] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Line::raw(watch.sentence()), title);
    let row =
        |[page, rest @ ..]: [String; 6]| Row::new(std::iter::once(Line::raw(page)).chain(rest.map(right)));
    let head = row(COLUMNS.map(str::to_owned)).style(heading());
    let widths = [16, 12, 14, 12, 14, 12].map(Constraint::Length);
    let rows = watch.pages().into_iter().take(SHOWN_PAGES).map(row);
    frame.render_widget(Table::new(rows, widths).header(head), table);
}

/// Every counter that grows, in words.
fn growing(watched: &Watched) -> String {
    let named = |(name, rate): (String, f64)| {
        let words = name.rsplit_once("counters/").map_or(name.as_str(), |(_, rest)| rest);
        format!("{} {}/s", words.replace(['_', '/'], " "), short(Some(rate)))
    };
    watched.rates.growing().into_iter().map(named).collect::<Vec<_>>().join(", ")
}

/// The rates of the last minute, the newest at the right.
struct Chart {
    measure: Measure,
    of: fn(&Past) -> f64,
    now: Duration,
}

impl Chart {
    fn draw(&self, frame: &mut Frame<'_>, area: Rect, watched: &Watched, style: Style) {
        let columns = self.columns(watched, area.width);
        let most = columns.iter().copied().reduce(f64::max);
        let title =
            format!("{} {} (max {})", self.measure.title(), short(watched.rate(self.measure)), short(most));
        // It counts in whole numbers: a hundredth of one in a second is still to be seen.
        let data = columns.iter().map(|rate| ((rate * 100.0) as u64).min(HIGHEST));
        let chart = Sparkline::default().block(Block::new().title(title)).data(data).style(style);
        frame.render_widget(chart, area);
    }

    /// For each column the highest rate of the looks that fall into its part of the minute.
    fn columns(&self, watched: &Watched, width: u16) -> Vec<f64> {
        let minute = TOP_HISTORY.as_secs_f64();
        let now = self.now.as_secs_f64();
        let column = |index: u16| {
            let start = now - minute * f64::from(width - index) / f64::from(width);
            let end = start + minute / f64::from(width);
            let within = |past: &&Past| past.from.as_secs_f64() < end && past.to.as_secs_f64() > start;
            watched.history.iter().filter(within).map(|past| (self.of)(past)).fold(0.0, f64::max)
        };
        (0..width).map(column).collect()
    }
}

/// How many faults took how long, since the process began: one place for each factor of two, or for several where the width asks
/// for it.
fn draw_latency(frame: &mut Frame<'_>, area: Rect, buckets: &[(u64, u64)], style: Style) {
    let (Some(first), Some(last)) =
        (buckets.iter().map(|(bound, _)| *bound).min(), buckets.iter().map(|(bound, _)| *bound).max())
    else {
        return;
    };
    if area.is_empty() {
        return;
    }
    let bound = |bound| if bound == u64::MAX { "any time".to_owned() } else { short_time(bound) };
    let title = format!("faults took < {} ... < {}", bound(first), bound(last));
    let place = |bound: u64| (bound.max(1).ilog2() - first.max(1).ilog2()) as usize;
    let bounded = buckets.iter().map(|(bound, _)| *bound).filter(|bound| *bound != u64::MAX);
    // What has no bound stands next to the last that has one.
    let beyond = bounded.map(place).max().map_or(0, |last| last + 1);
    let mut counts = vec![0_u64; beyond + 1];
    for &(bound, count) in buckets {
        let slot = &mut counts[if bound == u64::MAX { beyond } else { place(bound) }];
        *slot = slot.saturating_add(count);
    }
    if last != u64::MAX {
        counts.truncate(beyond);
    }
    let together = counts.len().div_ceil(usize::from(area.width));
    let sum =
        |counts: &[u64]| counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)).min(HIGHEST);
    let data: Vec<u64> = counts.chunks(together).map(sum).collect();
    let wide = usize::from(area.width) / data.len();
    let data: Vec<u64> = data.iter().flat_map(|count| std::iter::repeat_n(*count, wide)).collect();
    frame.render_widget(Sparkline::default().block(Block::new().title(title)).data(&data).style(style), area);
}

fn draw_queue_pairs(frame: &mut Frame<'_>, area: Rect, view: &mut View, watched: &Watched) {
    let connections = &watched.report.connections;
    if connections.is_empty() {
        let text = if watched.silence.is_some() { "" } else { "no queue pair" };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    view.room = usize::from(area.height.saturating_sub(1));
    view.first_queue_pair = view.first_queue_pair.min(connections.len().saturating_sub(view.room));
    // What says most of a queue pair stays: a narrow display leaves out its type and the depths of its queues.
    let narrow = area.width < NARROW;
    let measures = fitting(area.width, if narrow { 42 } else { 58 }, WIDE_RATE_WIDTH);
    let shown = connections.iter().skip(view.first_queue_pair).take(view.room);
    let lines: Vec<Row<'_>> = shown
        .map(|connection| {
            let [number, kind, state, peer, path, send, receive] = queue_pair_cells(connection);
            let path_style = match path.as_str() {
                "local" => view.coloured(Color::Green),
                "dead" => view.bad(),
                _ => Style::new(),
            };
            let state_style = if state == "ERR" { view.bad() } else { Style::new() };
            let mut cells = vec![Line::raw(number)];
            cells.extend((!narrow).then(|| Line::raw(kind)));
            cells.extend([Line::styled(state, state_style), Line::raw(peer), Line::styled(path, path_style)]);
            if !narrow {
                cells.extend([right(send), right(receive)]);
            }
            let qpn = connection.get("qpn").and_then(Value::as_u64).unwrap_or_default();
            cells.extend(
                measures.iter().map(|measure| right(short(measure.of_queue_pair(&watched.rates, qpn)))),
            );
            Row::new(cells)
        })
        .collect();
    let titles: &[&str] =
        if narrow { &["QPN", "state", "peer", "path"] } else { &["QPN", "type", "state", "peer", "path"] };
    let depths: &[&str] = if narrow { &[] } else { &["send", "receive"] };
    let numbers = depths.iter().copied().chain(measures.iter().map(|measure| measure.title_of_queue_pairs()));
    let head = titles.iter().map(|&title| Line::raw(title.to_owned()));
    let head = Row::new(head.chain(numbers.map(|title| right(title.to_owned())))).style(heading());
    let widths: &[u16] = if narrow { &[8, 5] } else { &[8, 4, 5] };
    let depths: &[u16] = if narrow { &[] } else { &[5, 7] };
    let widths = widths.iter().copied().map(Constraint::Length);
    let widths = widths.chain([Constraint::Min(18), Constraint::Length(5)]);
    let widths = widths.chain(depths.iter().copied().map(Constraint::Length));
    let widths = widths.chain(measures.iter().map(|_| Constraint::Length(WIDE_RATE_WIDTH)));
    frame.render_widget(Table::new(lines, widths).header(head), area);
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let wanted = (52, KEYS.len() as u16 + 2);
    let size = (wanted.0.min(area.width), wanted.1.min(area.height));
    let middle = Rect::new((area.width - size.0) / 2, (area.height - size.1) / 2, size.0, size.1);
    let lines: Vec<Line<'_>> =
        KEYS.iter().map(|(key, what)| Line::raw(format!(" {key:<17} {what}"))).collect();
    frame.render_widget(Clear, middle);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys ")), middle);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::{Listener, Silence};
    use crate::top::board::Filter;
    use crate::top::board::tests::answer;
    use crate::top::inquiry::Answer;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;
    use std::time::Instant;

    /// More than a PID can be (`PID_MAX_LIMIT`, proc_sys_kernel(5)): a process of this number has no name.
    const NO_PROCESS: u32 = 4_194_305;

    /// Two processes, and one that is stopped; of the first, `queue_pairs` queue pairs and a histogram.
    fn board(queue_pairs: u64) -> Board {
        let start = Instant::now();
        let mut board = Board::new(Filter::default(), start);
        for second in 0..=4_u64 {
            let mut lines = format!(
                "{{\"pid\":7,\"program\":\"ib_write_bw\",\"path_choice\":\"auto\",\"page_faults\":\"stash\",\
                 \"fault_latency\":[[1024,5],[8192,{second}]],\"counters\":{{\"bytes_sent\":{}}}}}\n",
                second * 2500
            );
            for number in 0..queue_pairs {
                lines += &format!(
                    "{{\"qpn\":{},\"type\":\"RC\",\"state\":\"RTS\",\"peer_qpn\":18,\"peer\":\"10.0.0.2\",\"path\":\"udp\",\
                     \"send_requests\":3,\"receive_requests\":0,\"packets_sent\":{},\"page_waits\":{},\
                     \"protocol\":{{\"timeouts\":{second}}}}}\n",
                    0x11 + number,
                    second * 20,
                    second * second
                );
            }
            board.take(answer(start, 7, &lines, second as f64));
            board.take(answer(start, 8, "{\"pid\":8,\"program\":\"idle\"}\n", second as f64));
        }
        board.take(Answer { told: Err(Silence::Stopped), ..answer(start, NO_PROCESS, "", 4.0) });
        board
    }

    fn drawn(board: &Board, view: &mut View, (width, height): (u16, u16)) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no device");
        let status = Status { interval: Duration::from_secs(1), now: Duration::from_secs(4), trouble: None };
        terminal.draw(|frame| draw(frame, board, view, status)).expect("no device");
        terminal.backend().buffer().clone()
    }

    /// The lines, without spaces at their ends.
    fn lines(buffer: &Buffer) -> Vec<String> {
        let symbol = |x, y| buffer.cell((x, y)).map_or(" ", |cell| cell.symbol());
        let width = buffer.area.width;
        (0..buffer.area.height)
            .map(|y| (0..width).map(|x| symbol(x, y)).collect::<String>().trim_end().to_owned())
            .collect()
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    fn line_with<'a>(lines: &'a [String], text: &str) -> &'a str {
        lines.iter().find(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text} in {lines:#?}"))
    }

    #[test]
    fn the_processes_and_the_queue_pairs_of_the_chosen_one_are_shown() {
        let board = board(1);
        let lines = lines(&drawn(&board, &mut View::default(), (126, 30)));
        assert_eq!(lines[0], "pagewire top  3 processes, every 1 s");
        let head =
            ["PID\u{2191}", "program", "op/s", "bytes/s", "packets/s", "faults/s", "stashed/s", "resent/s"];
        assert_eq!(words(&lines[1]), head);
        assert_eq!(words(&lines[2]), ["7", "ib_write_bw", "-", "2.5k", "20", "7", "-", "-"]);
        assert_eq!(words(&lines[3]), ["8", "idle", "-", "-", "-", "-", "-", "-"]);
        assert_eq!(words(&lines[4]), ["4194305", "?", "-", "-", "-", "-", "-", "-"]);
        assert!(
            lines[5].contains(" ib_write_bw (PID 7)  path asked for: auto  page faults: stash "),
            "{}",
            lines[5]
        );
        assert_eq!(lines[6], "bytes sent 2.5k/s, packets sent 20/s, page waits 7/s, protocol timeouts 1/s");
        line_with(&lines, "faults/s 7 (max 7)");
        line_with(&lines, "bytes/s 2.5k (max 2.5k)");
        line_with(&lines, "faults took < 1.0 us ... < 8.2 us");
        let queue_pair = line_with(&lines, "0x0011");
        let expected = [
            "0x0011", "RC", "RTS", "10.0.0.2", "QPN", "0x0012", "udp", "3", "0", "-", "-", "20", "7", "-",
            "-",
        ];
        assert_eq!(words(queue_pair), expected);
        assert!(lines[29].starts_with("q quit"), "{}", lines[29]);
    }

    #[test]
    fn another_process_can_be_chosen_and_one_that_is_silent_says_why() {
        let board = board(1);
        let mut view = View { chosen: Some(Listener::for_test(8)), ..View::default() };
        line_with(&lines(&drawn(&board, &mut view, (100, 30))), "no queue pair");
        let mut view = View { chosen: Some(Listener::for_test(NO_PROCESS)), ..View::default() };
        line_with(&lines(&drawn(&board, &mut view, (100, 30))), "no answer within 2 s");
        // One that has ended: the first again.
        let mut view = View { chosen: Some(Listener::for_test(10)), ..View::default() };
        line_with(&lines(&drawn(&board, &mut view, (100, 30))), "ib_write_bw (PID 7)");
    }

    #[test]
    fn charts_rise_at_the_right_with_the_rates() {
        let board = board(1);
        let lines = lines(&drawn(&board, &mut View::default(), (120, 30)));
        let title = lines.iter().position(|line| line.contains("faults/s 7 (")).expect("a chart");
        let left = |line: &String| line.chars().take(38).collect::<String>();
        // 1, 3, 5 and 7 faults in the last four of sixty seconds.
        let bottom = left(&lines[title + 3]);
        let bars: Vec<char> = bottom.trim_start().chars().collect();
        assert!(bars.len() >= 2 && bars.len() <= 4, "{bottom:?}");
        assert_eq!(bars.last(), Some(&'\u{2588}'), "{bottom:?}");
        assert!(
            left(&lines[title + 1]).trim_start().chars().count() < bars.len(),
            "the top is only reached last"
        );
    }

    #[test]
    fn queue_pairs_scroll_as_far_as_there_are_any() {
        let board = board(100);
        let mut view = View { first_queue_pair: usize::MAX / 2, ..View::default() };
        let shown = lines(&drawn(&board, &mut view, (120, 30)));
        assert_eq!(view.first_queue_pair, 100 - view.room);
        line_with(&shown, "0x0074");
        assert!(!shown.iter().any(|line| line.contains("0x0011")));
    }

    #[test]
    fn connections_and_refusals_of_the_chosen_process_are_shown() {
        let mut board = Board::new(Filter::default(), Instant::now());
        let ids: Vec<String> = (0..40)
            .map(|id| {
                format!(
                    "{{\"id\":{id},\"space\":\"TCP\",\"state\":\"established\",\"source\":\"10.0.0.1:7174\",\
                     \"destination\":\"10.0.0.2:40001\",\"queue_pair\":17,\"peer_queue_pair\":18}}"
                )
            })
            .collect();
        let line = format!(
            "{{\"pid\":7,\"program\":\"a\",\"connection_manager\":{{\"event_channels\":1,\"ids\":[{}],\"refusals\":[\
             {{\"time\":5.0,\"direction\":\"sent\",\"peer\":\"10.0.0.3\",\"count\":2,\"reason\":\"nobody listens\"}}]}}}}\n",
            ids.join(",")
        );
        board.take(answer(Instant::now(), 7, &line, 0.0));
        let shown = lines(&drawn(&board, &mut View::default(), (126, 40)));
        line_with(&shown, "connection manager: 1 event channel, 40 IDs");
        line_with(&shown, "refused a request of 10.0.0.3, 2 times: nobody listens");
        let id = words(line_with(&shown, "established"));
        assert_eq!(id, ["0", "TCP", "established", "10.0.0.1:7174", "10.0.0.2:40001", "0x0011", "0x0012"]);
        let third = shown.iter().filter(|line| line.contains("established")).count();
        assert!((2..14).contains(&third), "the queue pairs keep most of the display: {third}");
        for size in [(1, 1), (7, 9), (60, 24), (300, 100)] {
            drawn(&board, &mut View::default(), size);
        }
    }

    #[test]
    fn help_and_pause_are_seen() {
        let board = board(1);
        let mut view = View { help: true, paused: true, ..View::default() };
        let shown = lines(&drawn(&board, &mut view, (100, 30)));
        assert!(shown[0].ends_with("PAUSED"), "{}", shown[0]);
        for (key, what) in KEYS {
            assert!(line_with(&shown, what).contains(key), "{key}");
        }
    }

    #[test]
    fn colours_are_used_only_where_they_may_be() {
        let board = board(1);
        for colours in [false, true] {
            let mut view = View { colours, paused: true, ..View::default() };
            let buffer = drawn(&board, &mut view, (120, 30));
            let coloured =
                buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
            assert_eq!(coloured, colours);
        }
    }

    #[test]
    fn a_narrow_terminal_has_fewer_columns_and_whole_ones() {
        let mut board = board(1);
        board.order = Order::Rate(Measure::Retransmissions);
        let shown = lines(&drawn(&board, &mut View::default(), (80, 24)));
        assert_eq!(words(&shown[1]).last(), Some(&"resent/s\u{2193}"));
        assert_eq!(words(&shown[1]).len(), 2 + Measure::ALL.len());
        let head = line_with(&shown, "QPN      type");
        assert!(head.ends_with("waits/s") && head.contains("direct B/s"), "{head}");
    }

    /// Nothing is cut off in the midst of a word or a number.
    #[test]
    fn sixty_columns_show_whole_words() {
        let board = board(1);
        let shown = lines(&drawn(&board, &mut View::default(), (60, 24)));
        assert!(words(&shown[1]).len() >= 5 && words(&shown[2])[1] == "ib_write_bw", "{}", shown[1]);
        let head = line_with(&shown, "QPN      state");
        assert!(head.ends_with("packets/s") || head.ends_with("waits/s"), "{head}");
        let queue_pair = words(line_with(&shown, "0x0011"));
        assert_eq!(queue_pair[..6], ["0x0011", "RTS", "10.0.0.2", "QPN", "0x0012", "udp"]);
        assert_eq!(shown[23], "q quit  ? help  p pause  Up/Down process  Left/Right sort");
        line_with(&shown, "bytes/s 2.5k (max 2.5k)");
        assert!(!shown.iter().any(|line| line.contains("faults took")), "{shown:?}");
        line_with(&shown, "page faults: stash");
    }

    #[test]
    fn no_size_of_a_terminal_is_too_small() {
        for queue_pairs in [0, 1, 100] {
            let board = board(queue_pairs);
            for size in [(1, 1), (1, 50), (200, 1), (7, 3), (40, 8), (79, 24), (300, 100)] {
                drawn(&board, &mut View { help: true, ..View::default() }, size);
                drawn(&board, &mut View::default(), size);
            }
        }
        let empty = Board::new(Filter { wanted: vec!["nobody".to_owned()] }, Instant::now());
        line_with(&lines(&drawn(&empty, &mut View::default(), (80, 24))), "No process answers to nobody.");
    }

    #[test]
    fn any_histogram_can_be_drawn() {
        let start = Instant::now();
        let hostile = [
            "[[0,0]]",
            "[[18446744073709551615,18446744073709551615],[18446744073709551615,1]]",
            "[[4096,1],[2,1],[1,9]]",
            "[[2,1],[18446744073709551615,3]]",
            "[[18446744073709551614,1],[0,1]]",
        ];
        for histogram in hostile {
            let mut board = Board::new(Filter::default(), start);
            let line = format!("{{\"pid\":7,\"program\":\"a\",\"fault_latency\":{histogram}}}\n");
            board.take(answer(start, 7, &line, 0.0));
            for width in [3, 10, 80, 300] {
                drawn(&board, &mut View::default(), (width, 40));
            }
        }
    }
}
