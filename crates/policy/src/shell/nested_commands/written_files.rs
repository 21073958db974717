//! Files that a command writes: copies, links, moves, and files made or unpacked from the text's input.

use super::super::reader::ShellReader;
use super::super::word::ShellWord;
use super::super::{SimpleCommand, is_assignment};
use crate::programs::{base, file_name};
use crate::shell::effects::{ContentOrigin, content, written_among};

/// Programs that run others with words from another source.
const SUPPLIERS: &[&str] = &["xargs", "parallel", "find", "fd", "fdfind"];
/// File name endings that unpacking removes.
const PACKED: &[&str] = &[".gz", ".bz2", ".xz", ".zst", ".lz4"];

impl ShellReader<'_> {
    /// Records the files that a command's words name as written.
    pub(super) fn record_written_files(&mut self, simple: &SimpleCommand, has_document: bool) {
        let is_given = simple.piped || has_document || simple.input.is_some();
        let views = simple.views();
        let is_supplied = views.first().is_some_and(|own| SUPPLIERS.contains(&base(&own[0].text).as_str()));
        for (n, view) in views.iter().enumerate() {
            let program = file_name(&view[0].text);
            let Some(content) = content(&program) else { continue };
            let own = |word: &ShellWord| self.context.files.has_written(&word.text);
            let is_own = || {
                view[1..].iter().any(own)
                    || simple.reads.iter().any(|file| self.context.files.has_written(file))
            };
            let applies = program == "git" && view[1..].iter().any(|word| word.is("apply") || word.is("am"));
            match content {
                ContentOrigin::Given if applies && (is_given || is_own()) => self.context.files.unpack(),
                ContentOrigin::Given => {}
                ContentOrigin::Unpacked if is_given || is_own() => {
                    self.context.files.unpack();
                    continue;
                }
                ContentOrigin::Made if is_given || is_own() => {
                    self.context.files.write(&ShellWord::default(), "a.out");
                }
                ContentOrigin::Unpacked | ContentOrigin::Made | ContentOrigin::Nothing => continue,
            }
            let arguments: Vec<&str> = view[1..].iter().map(|word| word.text.as_str()).collect();
            let files = written_among(&program, &arguments);
            if n > 0 && is_supplied && !files.is_empty() {
                self.context.files.write_any();
            }
            for file in files {
                let named = |word: &&ShellWord| word.text.ends_with(file);
                for word in view[1..].iter().filter(named) {
                    self.context.files.write(word, file);
                    for packed in PACKED {
                        if let Some(file) = file.strip_suffix(packed) {
                            self.context.files.write(word, file);
                        }
                    }
                }
            }
            // These may expand to several words, of which any may be written.
            let becomes_more = |word: &&ShellWord| (word.braces || word.splits) && !is_assignment(&word.text);
            if written_among(&program, &["x", "y"]).contains(&"y") {
                for word in view[1..].iter().filter(becomes_more) {
                    self.context.files.write(word, &word.text);
                }
            }
        }
    }
}
