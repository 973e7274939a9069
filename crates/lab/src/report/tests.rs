//! What the report promises: whole, safe, the same again, and readable without colours.

use super::sample::{cells, outcomes};
use super::*;
use crate::reviews::outcome::{Outcome, Value};

fn html(outcomes: &[Outcome]) -> String {
    let missing = ["The folder of traces was not found.".to_string()];
    let cells = cells();
    let notes = ["db-host: an empty line (once at line 7): left out".to_string()];
    Report { outcomes, cells: &cells, missing: &missing, notes: &notes, date: "2026-11-21", version: "0.1.0" }.html()
}

/// The names of the elements that are open at each closing one must match; what is left open in the end.
fn open_at_the_end(html: &str) -> Vec<String> {
    const VOID: [&str; 6] = ["!doctype", "meta", "path", "circle", "rect", "br"];
    let mut open: Vec<String> = Vec::new();
    // The style has no elements in it.
    let body = html.split("</style>").nth(1).expect("a style");
    for tag in body.split('<').skip(1) {
        let tag = tag.split('>').next().expect("split gives one");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().expect("split gives one").to_string();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_ref(), Some(&name), "near {tag}");
        } else if !VOID.contains(&name.as_str()) {
            open.push(name);
        }
    }
    open
}

#[test]
fn the_file_is_whole_and_needs_nothing_else() {
    let page = html(&outcomes());
    // For eyes: the page that is tested here.
    if let Some(path) = std::env::var_os("BIMETAL_SAMPLE_REPORT") {
        std::fs::write(path, &page).expect("written");
    }
    // The head and html elements began before the style.
    let rest = page.replacen("<!doctype html>\n<html lang=\"en\">\n<head>", "", 1);
    let rest = rest.replacen("</head>", "", 1).replacen("</html>", "", 1);
    assert!(open_at_the_end(&rest).is_empty());
    for outside in ["http:", "https:", "<script", "<link", "<img", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("name=\"viewport\""));
}

#[test]
fn it_says_who_wins_in_signs_and_words() {
    let page = html(&outcomes());
    // F3: both figures that must be better are, the equal one is; one bar of two is missed. D3: one is, one is not.
    assert!(page.contains("\u{2717} Bimetal does not do all that is asked of it in <b>2 of 2</b> experiments"));
    assert!(page.contains("<b>3 of 3</b> figures that must be better"));
    assert!(page.contains("<b>1 of 2</b> figures that may be 2 % worse"));
    assert!(page.contains("\u{2713} met") && page.contains("\u{2717} missed"));
    for words in ["7 to 9", "never", "8 % behind the model", "3.88 times as good", "must be better than the model"] {
        assert!(page.contains(words), "{words}");
    }
    for o in outcomes() {
        assert!(page.contains(&format!("<section id=\"{}\">", o.id)) && page.contains(&text::escaped(&o.method)));
    }
    assert!(page.contains("The folder of traces was not found.") && page.contains("an empty line (once at line 7)"));
    assert!(MARK.iter().all(|mark| page.contains(mark) || mark.contains("policies")));
}

#[test]
fn the_matrix_has_wins_and_losses() {
    let page = html(&[]);
    assert!(
        page.contains("the least disk time in <b>1 of 3</b> cells, level in 1, more than 5 % behind the best in \n")
            || page.contains("in <b>1 of 3</b> cells, level in 1")
    );
    assert!(page.contains("12.5 % more") && page.contains("9.38 % less") && page.contains("not seen"));
    // The cache needs least, but has no budget.
    let cache = page.find("not compared: Smart Response, 64 GB cache").expect("a column");
    let (after_use, least) =
        (page.find("Least after a use").expect("a column"), page.find("Least of all").expect("a column"));
    assert!(after_use < least && least < cache);
    assert!(
        page.contains("<td>2</td><td>1.5</td><td>2</td></tr>") && !page.contains("\u{25c6}\u{a0}2<"),
        "no mark for it"
    );
    assert!(!page.contains("In short"), "no experiments, no summary of them");
}

#[test]
fn the_same_outcomes_make_the_same_bytes() {
    assert_eq!(html(&outcomes()), html(&outcomes()));
}

#[test]
fn no_text_from_outside_becomes_html() {
    const EVIL: &str = "<script>alert(1)</script>\" onload='x' &amp;";
    let evil = || EVIL.to_string();
    let mut all = outcomes();
    for o in &mut all {
        (o.title, o.machine, o.method, o.finding) = (evil(), evil(), evil(), evil());
        for m in &mut o.metrics {
            (m.label, m.unit, m.remark) = (evil(), EVIL, Some(evil()));
            m.values.iter_mut().for_each(|(_, v)| {
                if let Value::Words(w) = v {
                    *w = evil();
                }
            });
        }
        o.checks.iter_mut().for_each(|c| (c.what, c.seen) = (evil(), evil()));
        o.charts.iter_mut().for_each(|c| (c.title, c.x, c.y) = (evil(), evil(), evil()));
    }
    let mut cells = cells();
    for c in &mut cells {
        c.workload = evil();
        c.entries.iter_mut().for_each(|e| e.replay.policy.push_str(EVIL));
    }
    let missing = [evil()];
    let page =
        Report { outcomes: &all, cells: &cells, missing: &missing, notes: &missing, date: EVIL, version: EVIL }.html();
    assert!(!page.contains("<script") && !page.contains("onload='") && !page.contains("onload=\""));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&#39;x&#39; &amp;amp;"));
    let rest = page.replacen("<!doctype html>\n<html lang=\"en\">\n<head>", "", 1);
    assert!(open_at_the_end(&rest.replacen("</head>", "", 1).replacen("</html>", "", 1)).is_empty());
}

#[test]
fn an_empty_report_is_a_page_too() {
    let page = Report { date: "today", version: "0", ..Report::default() }.html();
    assert!(page.contains("</html>"));
}
