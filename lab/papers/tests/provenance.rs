//! From which inputs the papers' numbers and figures are computed, and what each number is counted as.

use pagewire_papers::unit_costs::{FrrwpCosts, Input, JbmtCosts, PartCosts, ReuseCosts, Source, all_inputs};
use pagewire_papers::{
    Claim, Computed, InputSet, Paper, Place, Prediction, Provenance, Verdict, claims, figures, frrwp, jbmt,
    part, reuse,
};

fn find(paper: Paper, what: &str) -> Claim {
    claims(paper).into_iter().find(|claim| claim.what == what).unwrap_or_else(|| panic!("{what}"))
}

/// What a curve of a figure is computed from.
fn inputs_of(paper: Paper, place: Place, curve: &str) -> InputSet {
    let figures = figures(paper);
    let curves = figures.iter().filter(|figure| figure.place == place).flat_map(|figure| &figure.curves);
    let Some(Provenance::Computed(inputs)) =
        curves.filter(|own| own.name == curve).map(|own| own.provenance).next()
    else {
        panic!("{curve} is computed")
    };
    inputs
}

#[test]
fn no_number_is_computed_from_itself_or_from_nothing() {
    for claim in Paper::ALL.map(claims).concat() {
        assert_eq!(claim.refusal(), None);
        let elsewhere = claim.at_other_link.map(|other| Claim { predicted: other, ..claim.clone() });
        assert_eq!(elsewhere.and_then(|claim| claim.refusal()), None);
    }
}

/// A number that is, or rounds to, an input of its own prediction is no prediction, whatever it is called.
#[test]
fn number_computed_from_the_papers_value_of_it_is_refused() {
    let card = inputs_of(Paper::Frrwp, Place::Figure(2), "kernel space");
    let forty = Computed { value: 40.0, inputs: card };
    let row = find(Paper::Frrwp, "4 KB: ordinary registration");
    for predicted in [Prediction::Sum(forty, forty), Prediction::Value(forty)] {
        let refusal = Claim { predicted, ..row.clone() }.refusal().expect("refused");
        assert!(refusal.contains("telling the card") && refusal.contains(row.what), "{refusal}");
    }
    // 40 us of an input of 40 us, under a name that no input has.
    let other = Claim {
        what: "about 40 us, again",
        stated: (40.0, 40.0),
        predicted: Prediction::Value(forty),
        ..row.clone()
    };
    assert!(other.refusal().is_some());
    let ns = Claim {
        unit: "ns",
        stated: (40_000.0, 40_000.0),
        predicted: Prediction::Value(Computed { value: 40_000.0, ..forty }),
        ..other.clone()
    };
    assert!(ns.refusal().is_some());
    let sum = Claim {
        stated: (54.0, 54.0),
        predicted: Prediction::Value(Computed { value: 54.0, ..forty }),
        ..other
    };
    assert_eq!(sum.refusal(), None);
    let nothing = Computed { value: 40.0, inputs: InputSet::EMPTY };
    assert!(Claim { predicted: Prediction::Value(nothing), ..row.clone() }.refusal().is_some());
    assert_eq!(row.refusal(), None, "given");
}

/// What is given is an input, or a line says by what it is given; and what inputs say that they are is a number of the paper.
#[test]
fn given_numbers_are_inputs_or_say_by_what() {
    let claims = Paper::ALL.map(claims).concat();
    for claim in claims.iter().filter(|claim| claim.predicted == Prediction::Given) {
        let is_input = all_inputs().any(|input| input.states.contains(&(claim.place, claim.what)));
        assert!(is_input || claim.reason.is_some(), "{}: {}", claim.place, claim.what);
    }
    for (input, (place, what)) in
        all_inputs().flat_map(|input| input.states.iter().map(move |row| (input, row)))
    {
        let named = claims.iter().filter(|claim| (claim.place, claim.what) == (*place, *what)).count();
        assert_eq!(named, 1, "{}: {place}: {what}", input.name);
    }
}

#[test]
fn inputs_have_values_and_sources() {
    for Input { name, values, source, unit, .. } in all_inputs() {
        let is_number = !values.is_empty() && values.iter().all(|value| value.is_finite());
        let is_structure = ["translation buffers", "page-table walker", "hits under faults"].contains(name);
        assert!(is_number || is_structure && unit.is_empty(), "{name}");
        assert!(source.to_string().len() > 6, "{name}");
    }
    assert!(all_inputs().filter(|input| input.source == Source::Assumption).count() > 25);
}

/// A number moves with an input only if it names it.
fn moves_only_with(name: &str, plain: &[Claim], other: &[Claim]) {
    let mut moved = 0;
    for (one, other) in plain.iter().zip(other) {
        if one.predicted.range() != other.predicted.range() {
            moved += 1;
            let inputs = one.predicted.inputs();
            assert!(inputs.inputs().any(|input| input.name == name), "{name}: {}: {}", one.place, one.what);
        }
    }
    assert!(moved > 0 && moved < plain.len(), "{name}: {moved} of {}", plain.len());
}

#[test]
fn number_of_part_names_each_input_that_moves_it() {
    let costs = PartCosts::PAPER;
    let plain = part::claims(&costs);
    for (name, other) in [
        ("link", PartCosts { link: costs.link * 2, ..costs }),
        ("ERR", PartCosts { err: costs.err * 2, ..costs }),
        ("interrupt handler", PartCosts { handler: costs.handler * 2, ..costs }),
        ("page of get_user_pages", PartCosts { page_in_page: costs.page_in_page * 2, ..costs }),
        ("touch of an absent page", PartCosts { touch_absent: costs.touch_absent * 2, ..costs }),
        ("page of mlock", PartCosts { pin_page: costs.pin_page * 2, ..costs }),
    ] {
        moves_only_with(name, &plain, &part::claims(&other));
    }
}

#[test]
fn number_of_the_other_papers_names_each_input_that_moves_it() {
    let costs = JbmtCosts::PAPER;
    let plain = jbmt::claims(&costs);
    moves_only_with("short VNIC message", &plain, &jbmt::claims(&JbmtCosts { message: 9_000, ..costs }));
    moves_only_with("link", &plain, &jbmt::claims(&JbmtCosts { link: 2_000, ..costs }));
    let costs = FrrwpCosts::PAPER;
    let plain = frrwp::claims(&costs);
    moves_only_with("short message", &plain, &frrwp::claims(&FrrwpCosts { latency: 9_000, ..costs }));
    moves_only_with(
        "telling the card of a region",
        &plain,
        &frrwp::claims(&FrrwpCosts { card: 50_000, ..costs }),
    );
    let systems = [ReuseCosts::MUTRINO, ReuseCosts::STRIA];
    let other = systems.map(|costs| ReuseCosts { largest: costs.largest * 2, ..costs });
    moves_only_with(
        "registration of 2 MiB (Mutrino, Stria)",
        &reuse::claims(&systems),
        &reuse::claims(&other),
    );
    let other = systems.map(|costs| ReuseCosts { slab: costs.slab / 2, ..costs });
    moves_only_with("slab, at least", &reuse::claims(&systems), &reuse::claims(&other));
}

/// Each number has one verdict: in the order of [`Verdict::ALL`], by paper.
#[test]
fn verdicts_are_counted_for_each_paper() {
    let counts = Paper::ALL.map(|paper| {
        let claims = claims(paper);
        let counted = Verdict::count(&claims).map(|(_, count)| count);
        assert_eq!(counted.iter().sum::<usize>(), claims.len());
        counted
    });
    let expected = [
        [15, 15, 1, 13, 2, 11, 25, 23],
        [1, 0, 0, 1, 0, 5, 1, 0],
        [1, 2, 0, 2, 0, 13, 6, 6],
        [2, 5, 0, 4, 7, 7, 6, 0],
        [2, 0, 0, 4, 2, 9, 14, 0],
    ];
    assert_eq!(counts[..], expected);
}

#[test]
fn numbers_that_only_seemed_predicted_are_not() {
    for (paper, what, verdict) in [
        (Paper::Active, "network cards: the least of AM and RMA to AA (\"lowest\")", Verdict::Given),
        (
            Paper::Active,
            "routers of each topology: the least of AM and RMA to AA (\"lowest\")",
            Verdict::Given,
        ),
        (Paper::Active, "lru to rnd of 2 and more ways, at least (\"always better\")", Verdict::Missed),
        (Paper::Active, "packets, of 512 bytes by assumption: e-iommu slower by", Verdict::Undecided),
        (Paper::Frrwp, "kernel space less than user space, below 32 KB", Verdict::Given),
        (Paper::Frrwp, "128 KB: ordinary registration", Verdict::Given),
        (Paper::Reuse, "Stria: reuse sooner, up to", Verdict::Undecided),
        (Paper::Reuse, "least size without a gain", Verdict::Given),
    ] {
        assert_eq!(find(paper, what).verdict(), verdict, "{what}");
    }
}

/// The cause of a range stands beside it: the inputs that change the number by more than a tenth.
#[test]
fn ranges_have_causes() {
    let names =
        |what| find(Paper::Reuse, what).varied_by.inputs().map(|input| input.name).collect::<Vec<_>>();
    assert_eq!(names("Stria: reuse sooner, up to"), ["request from a slab, less than (Mutrino, Stria)"]);
    assert_eq!(names("Mutrino: put of reused memory sooner, up to").len(), 3);
    for claim in Paper::ALL.map(claims).concat() {
        let is_without_cause = claim.varied_by == InputSet::EMPTY && claim.verdict() == Verdict::Undecided;
        assert!(!is_without_cause, "{}: {}", claim.place, claim.what);
    }
}

/// Each of Active Access's assumed inputs is varied in some number that it moves.
#[test]
fn every_assumed_input_of_active_access_that_decides_a_number_is_varied() {
    let claims = claims(Paper::Active);
    let varied = |name: &str| {
        claims.iter().any(|claim| {
            claim.varied.is_some() && claim.predicted.inputs().inputs().any(|input| input.name == name)
        })
    };
    for name in [
        "messages under way, at most",
        "doublings of AM-Exp, at most",
        "levels of the page table",
        "cell",
        "accesses between two Allreduces",
        "bandwidth of a process",
        "get of the sort",
        "packet of the generator",
    ] {
        assert!(varied(name), "{name}");
    }
}

#[test]
fn curves_say_where_they_come_from() {
    for figure in Paper::ALL.map(figures).concat() {
        for curve in &figure.curves {
            let is_computed =
                matches!(curve.provenance, Provenance::Computed(inputs) if inputs != InputSet::EMPTY);
            let is_of_paper = curve.provenance == Provenance::Stated && curve.name.contains("paper");
            assert!(is_computed || is_of_paper, "{}: {}: {:?}", figure.place, curve.name, curve.provenance);
        }
    }
}
