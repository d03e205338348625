//! Keys.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::Top;

/// Lines that a page has.
const PAGE: isize = 10;
/// Longest filter, characters.
const FILTER: usize = 64;

impl Top {
    /// Takes a key; true when it says to quit.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return matches!(key.code, KeyCode::Char('c'));
        }
        if std::mem::take(&mut self.help) {
            return key.code == KeyCode::Char('q');
        }
        if self.typing {
            self.type_filter(key.code);
            return false;
        }
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = true,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.enter(),
            // Out of the filter, then out of the level.
            KeyCode::Esc if !self.level().filter.is_empty() => self.level_mut().filter.clear(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => _ = self.leave(),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::PageDown => self.move_by(PAGE),
            KeyCode::PageUp => self.move_by(-PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.move_by(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.move_by(isize::MAX),
            _ => {}
        }
        self.clamp();
        false
    }

    fn type_filter(&mut self, code: KeyCode) {
        let filter = &mut self.level_mut().filter;
        match code {
            KeyCode::Char(c) if filter.chars().count() < FILTER && !c.is_control() => filter.push(c),
            KeyCode::Backspace => _ = filter.pop(),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                filter.clear();
                self.typing = false;
            }
            _ => {}
        }
        self.clamp();
    }
}
