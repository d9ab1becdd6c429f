//! What the keys do.

use super::board::{Board, Order};
use super::view::View;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::ops::ControlFlow;

/// Does what a key says; `Break`: the display is to end.
pub fn press(key: KeyEvent, board: &mut Board, view: &mut View) -> ControlFlow<()> {
    match key.code {
        KeyCode::Char('q') => return ControlFlow::Break(()),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return ControlFlow::Break(()),
        KeyCode::Char('?' | 'h') => view.help = !view.help,
        KeyCode::Esc => view.help = false,
        KeyCode::Char('p' | ' ') => view.paused = !view.paused,
        KeyCode::Char('r') => board.reversed = !board.reversed,
        KeyCode::Up => choose(board, view, -1),
        KeyCode::Down => choose(board, view, 1),
        KeyCode::Left => sort(board, -1),
        KeyCode::Right => sort(board, 1),
        KeyCode::PageUp => view.first_queue_pair = view.first_queue_pair.saturating_sub(view.room.max(1)),
        // Drawing takes back what is too far.
        KeyCode::PageDown => view.first_queue_pair += view.room.max(1),
        KeyCode::Home => view.first_queue_pair = 0,
        KeyCode::End => view.first_queue_pair = usize::MAX / 2,
        _ => {}
    }
    ControlFlow::Continue(())
}

/// The process so many rows further; at the ends the last one.
fn choose(board: &Board, view: &mut View, step: isize) {
    let rows = board.rows();
    let at = view.chosen.as_ref().and_then(|key| rows.iter().position(|(row, _)| *row == key)).unwrap_or(0);
    let to = at.saturating_add_signed(step).min(rows.len().saturating_sub(1));
    let chosen = rows.get(to).map(|(key, _)| (*key).clone());
    if chosen != view.chosen {
        view.first_queue_pair = 0;
    }
    view.chosen = chosen;
}

fn sort(board: &mut Board, step: isize) {
    let all = Order::all();
    let at = all.iter().position(|order| *order == board.order).unwrap_or(0);
    board.order = all[at.saturating_add_signed(step).min(all.len() - 1)];
    board.reversed = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::board::Filter;
    use crate::top::board::tests::answer;
    use crate::top::measures::Measure;
    use std::time::Instant;

    /// A board of three processes.
    fn board() -> Board {
        let start = Instant::now();
        let mut board = Board::new(Filter::default(), start);
        for pid in [3, 4, 5] {
            board.take(answer(start, pid, &format!("{{\"pid\":{pid},\"program\":\"p\"}}\n"), 0.0));
        }
        board
    }

    fn press_all(codes: &[KeyCode], board: &mut Board, view: &mut View) {
        for &code in codes {
            assert_eq!(press(KeyEvent::from(code), board, view), ControlFlow::Continue(()), "{code}");
        }
    }

    fn chosen(board: &Board, view: &View) -> u32 {
        let row = board.rows().into_iter().find(|(key, _)| Some(*key) == view.chosen.as_ref());
        row.expect("one is chosen").1.pid
    }

    #[test]
    fn arrows_choose_a_process_that_stays_chosen_where_it_is_sorted_to() {
        let (mut board, mut view) = (board(), View::default());
        view.first_queue_pair = 9;
        press_all(&[KeyCode::Down], &mut board, &mut view);
        assert_eq!((chosen(&board, &view), view.first_queue_pair), (4, 0));
        press_all(&[KeyCode::Down, KeyCode::Down, KeyCode::Down], &mut board, &mut view);
        assert_eq!(chosen(&board, &view), 5);
        press_all(&[KeyCode::Char('r')], &mut board, &mut view);
        assert_eq!((board.rows()[0].1.pid, chosen(&board, &view)), (5, 5));
        press_all(&[KeyCode::Up, KeyCode::Down], &mut board, &mut view);
        assert_eq!(chosen(&board, &view), 4);
        let mut empty = Board::new(Filter::default(), Instant::now());
        press_all(&[KeyCode::Up, KeyCode::Down], &mut empty, &mut view);
        assert_eq!(view.chosen, None);
    }

    #[test]
    fn arrows_choose_the_column_to_sort_by() {
        let (mut board, mut view) = (board(), View::default());
        press_all(&[KeyCode::Left], &mut board, &mut view);
        assert_eq!(board.order, Order::Pid);
        press_all(&[KeyCode::Right; 3], &mut board, &mut view);
        assert_eq!(board.order, Order::Rate(Measure::ALL[1]));
        press_all(&[KeyCode::Right; 30], &mut board, &mut view);
        assert_eq!(Some(board.order), Order::all().last().copied());
    }

    #[test]
    fn keys_open_and_close_pause_and_end() {
        let (mut board, mut view) = (board(), View::default());
        press_all(&[KeyCode::Char('?'), KeyCode::Char('p')], &mut board, &mut view);
        assert!(view.help && view.paused);
        press_all(&[KeyCode::Esc, KeyCode::Char(' '), KeyCode::Char('c')], &mut board, &mut view);
        assert!(!view.help && !view.paused);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for key in [KeyEvent::from(KeyCode::Char('q')), control_c] {
            assert_eq!(press(key, &mut board, &mut view), ControlFlow::Break(()));
        }
    }
}
