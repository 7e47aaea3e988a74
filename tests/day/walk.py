"""A day with napari, walked by a real mouse: `make day`.

Each test is a part of the day and goes on where the one before has ended.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd

from tests.day.data import Files
from tests.day.screen import View
from tests.day.user import User

RADIUS = 40
"""Radius of the lasso in pixels of the screen."""
LABELS = {"1": "tumor", "2": "T cell"}
"""The classes that are made by hand, by their keys."""
EPOCHS = 20
"""Epochs of each training; the default is 60."""
N_LABELS = 20
"""Number of cells that are labelled by hand."""


def lasso(user: User, class_: str) -> None:
    """Draw a circle around the middle of a class in the map, and check which cells are selected."""
    cells = user.settled(lambda: user.ask("cells"), "the map stays as it is")
    names, places = np.array(cells["names"]), np.array(cells["places"])
    middle = np.median(places[np.array(cells["labels"]) == class_], axis=0)
    angles, away = np.linspace(0, 2 * np.pi, 25), np.linalg.norm(places - middle, axis=1)
    user.drag(*middle + RADIUS * np.column_stack([np.cos(angles), np.sin(angles)]))
    # The mouse moves from pixel to pixel: the cells on the line may be inside or outside.
    inside, perhaps = set(names[away < RADIUS - 2]), set(names[away < RADIUS + 2])
    assert len(inside) > 10
    user.wait_until(lambda: inside <= set(user.selected()) <= perhaps, "the lasso selects cells")


def check_outlines(user: User, files: Files, image: str) -> None:
    """Check that the outlined cells are the selected ones, pixel by pixel."""
    view = View(files.masks[image], user.ask("tissue"))
    selected = user.selected()
    expected = {row.cell_id for row in rows_of(files, image) if row.Index in selected}
    expected &= view.cells
    user.wait_until(lambda: view.outlined(user.screen()) == expected, f"outlined: {expected}")
    assert len(view.cells) > 100


def test_sample(user: User) -> None:
    """napari opens the plugin and the sample by its menus; the plugin draws the map by itself."""
    user.start()
    user.choose("Plugins", "Centroid-Encoder*")
    user.wait_for("Sample tissue")
    user.choose("File", "Open Sample", "Centroid-Encoder", "Synthetic tissue*")
    user.wait_for("draft: * held out wrong")
    lasso(user, "T cell")
    user.click("Zoom to")


def test_sample_closes(user: User) -> None:
    assert user.close() == 0


def test_drop_and_open(user: User, files: Files) -> None:
    """Images and masks are dropped on napari, and the table is opened in the plugin."""
    user.start("--with", "centroid-encoder")
    layers = len(files.images)
    user.drop(
        files.images, 500, 400, lambda: len(user.ask("tissue")["layers"]) == layers, "the layers"
    )
    user.click("Open table …")
    user.choose_file(files.table)
    user.wait_for("draft: * held out wrong")
    user.wait_for(f"*{len(files.cells)} cells in 3 images, 3 of them open*")
    user.dismiss_notifications()


def test_lasso(user: User, files: Files) -> None:
    """A lasso in the map selects cells, and they are outlined in the image."""
    lasso(user, "T cell")
    check_outlines(user, files, "A")


def test_colour_by_a_marker(user: User, files: Files) -> None:
    """The colours of the cells on the screen follow the values of a marker."""
    # The comparison with the other cells needs room, and moves the fields.
    user.ready("Save table …")
    user.click("label", "QComboBox")
    user.wait_until(lambda: "Search" in user.ask("focus"), "the field has the focus")
    user.key("ctrl+a")
    user.type("cd3")
    user.key("Return")
    user.wait_for("CD3", "QComboBox")
    view = View(files.masks["A"], user.ask("tissue"))
    values = pd.Series({row.cell_id: row.CD3 for row in rows_of(files, "A")})

    def correlation() -> float:
        red, green, _ = user.screen().astype(int).transpose(2, 0, 1)
        return values.corr(pd.Series(view.mean_of(red - green)), method="spearman")

    # The scale goes from pale yellow to red.
    user.wait_until(lambda: correlation() > 0.8, "cells with much CD3 are red")


def test_gate(user: User, files: Files) -> None:
    """A handle beside the colours selects the cells with larger values."""
    gate = user.wait_for("Gate")
    left = gate["x"] - gate["width"] // 2
    user.drag((left + 8, gate["y"]), (left + 40, gate["y"]))
    names = np.array(user.ask("cells")["names"])
    values = dict(zip(names, files.cells["CD3"], strict=True))
    selected = user.settled(user.selected, "cells are selected")
    others = set(names) - set(selected)
    assert min(map(values.get, selected)) > max(map(values.get, others))
    check_outlines(user, files, "A")


def test_click(user: User, files: Files) -> None:
    """A click on a cell in the image selects it, and the card describes it."""
    view = View(files.masks["A"], user.ask("tissue"))
    row = next(row for row in rows_of(files, "A") if row.cell_id in view.cells)
    user.at(*view.place(row.cell_id))
    user.wait_for(f"{row.Index} · cell_type: {row.cell_type} · predicted: *")
    assert user.selected() == [row.Index]
    check_outlines(user, files, "A")


def test_label(user: User, files: Files) -> None:
    """Twenty cells get a label by a click and a key each, and the last one is undone."""
    user.click("Label", "QTabBar")
    user.click("Start labelling")
    user.click("name of a new class, then Enter")
    for name in LABELS.values():
        user.type(name)
        user.key("Return")
    for key, name in LABELS.items():
        user.wait_for(f"{key} · {name}  0*")
    view = View(files.masks["A"], user.ask("tissue"))
    rows = [row for row in rows_of(files, "A") if row.cell_id in view.cells]
    some = [row for name in LABELS.values() for row in rows if row.cell_type == name]
    todo = [
        row for name in LABELS.values() for row in [x for x in some if x.cell_type == name][:10]
    ]
    for n, row in enumerate(todo, start=1):
        user.at(*view.place(row.cell_id))
        user.wait_until(lambda row=row: user.selected() == [row.Index], f"{row} is selected")
        user.key({name: key for key, name in LABELS.items()}[row.cell_type])
        user.wait_for(f"{n} of {len(files.cells)} labelled*")
    user.key("ctrl+z")
    user.wait_for(f"{len(todo) - 1} of {len(files.cells)} labelled*")


def rows_of(files: Files, image: str) -> Any:
    """Return the rows of an image; `Index` is the name of the cell."""
    rows = files.cells[files.cells["image"] == image]
    return rows.set_axis(rows.index.astype(str)).itertuples()


def test_suggest(user: User, files: Files) -> None:
    """A suggested cell gets the proposed class by Enter."""
    user.wait_until(lambda: user.ask("cells")["has_map"], "a live map")
    user.click("Suggest")
    user.wait_for("Agree to all")
    user.key("Return")
    user.wait_for(f"20 of {len(files.cells)} labelled*")
    user.click("Done")


def test_train(user: User, files: Files) -> None:
    """The classes of the file are chosen again, and a map is trained on them."""
    user.click("▸ cells_ABC.csv*")
    user.click("cell_type_by_hand", "QComboBox")
    user.click("cell_type", "QListView")
    user.click("▾ cells_ABC.csv*")
    user.click("☰")
    user.click("Settings …", "QMenu")
    user.click("Epochs", "QLineEdit")
    user.type(str(EPOCHS))
    user.key("Tab", "Escape")
    user.click("Train")
    user.wait_for("* of * held out wrong")
    user.wait_until(lambda: user.ask("cells")["is_stored"], "the map is stored")


def test_check(user: User) -> None:
    """The labels are checked, and what was found is shown for review."""
    user.click("☰")
    user.click("Check labels", "QMenu")
    user.wait_for("*Voronoi error on images that the networks have seen:*")


def test_review(user: User, decided: dict[str, str]) -> None:
    """Three doubtful labels are decided by keys: two are changed, one is kept."""
    first = user.ready("*", "TableView")
    user.at(first["x"], first["y"])
    for n, key in enumerate(["Return", "k", "Return"], start=1):
        (name,) = user.wait_until(
            lambda: [x for x in user.selected() if x not in decided], "another cell is selected"
        )
        line = user.wait_for(name, "TableView")
        cells = [x for x in user.places("*", "TableView") if x["y"] == line["y"]]
        _, _, predicted, *_ = (x["text"] for x in sorted(cells, key=lambda x: x["x"]))
        decided[name] = "" if key == "k" else predicted
        user.key(key)
        user.wait_for(f"* Decided: {n}.")


def test_save(user: User, files: Files, decided: dict[str, str]) -> None:
    """Return saves the table under the proposed name; the file has all that was made."""
    before = files.table.read_bytes()
    save_by_return(user)
    saved = ad.read_h5ad(saved_file(files))
    assert files.table.read_bytes() == before
    by_hand = saved.obs["cell_type_by_hand"].dropna()
    assert len(by_hand) == N_LABELS
    rows = files.cells.set_axis(files.cells.index.astype(str))
    # The last cell is a suggested one, which may be of any class.
    assert (by_hand == rows["cell_type"][by_hand.index]).sum() >= N_LABELS - 1
    corrected = saved.obs["cell_type_relabeled"].astype(str)
    changed = corrected[corrected != saved.obs["cell_type"].astype(str)]
    assert changed.to_dict() == {name: label for name, label in decided.items() if label}
    assert saved.obsm["X_ce"].shape == (len(files.cells), 2)
    assert {"ce", "ce_cv", "ce_images_cv"} <= set(saved.uns)


def test_close(user: User) -> None:
    """The button of the window ends napari without a crash."""
    assert user.close() == 0


def test_open_again(user: User, files: Files) -> None:
    """Dropped on the plugin, the saved file and its images bring everything back."""
    user.start("--with", "centroid-encoder")
    dock = user.wait_for("Sample tissue")
    user.drop(
        [*files.images, saved_file(files)],
        dock["x"],
        dock["y"] + 100,
        lambda: user.ask("cells").get("is_stored"),
        "the map is read",
    )
    user.wait_for("* of * held out wrong")
    saved = ad.read_h5ad(saved_file(files))
    cells = user.ask("cells")
    assert cells["labels"] == saved.obs["cell_type"].tolist()
    user.click("Review *", "QTabBar")
    user.wait_for("* Decided: 3.")
    user.click("Label", "QTabBar")
    user.click("Start labelling")
    user.wait_for(f"{N_LABELS} of {len(files.cells)} labelled*")
    user.click("Done")


def saved_file(files: Files) -> Path:
    """Return the name that is proposed for the table."""
    return files.table.with_name(f"{files.table.stem}_ce.h5ad")


def run_copied(user: User, table: Path) -> ad.AnnData:
    """Copy the script of a saved table, run it, and return the table that it writes."""
    user.click("Save", "QPushButton")
    user.click("Copy as Python", "QMenu")
    user.wait_for("Copied.*")
    script = user.folder / "copied.py"
    script.write_text(user.ask("clipboard"))
    command = [sys.executable, str(script)]
    done = subprocess.run(
        command, cwd=table.parent, env=user.env | {"MPLBACKEND": "agg"}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    return ad.read_h5ad(table.with_name(f"{table.stem}_ce.h5ad"))


def test_copy_the_training(user: User, files: Files) -> None:
    """The copied script trains the same map, and makes the same checks."""
    saved = ad.read_h5ad(saved_file(files))
    made = run_copied(user, saved_file(files))
    np.testing.assert_allclose(made.obsm["X_ce"], saved.obsm["X_ce"], rtol=1e-4, atol=1e-4)
    assert made.obs["ce_cv_label"].equals(saved.obs["ce_cv_label"])


def test_next_image(user: User, files: Files, next_files: Files) -> None:
    """The cells of the next image are placed in the map, and shown in this image."""
    layers = len(user.ask("tissue")["layers"]) + len(next_files.images)
    user.drop(
        next_files.images, 500, 400, lambda: len(user.ask("tissue")["layers"]) >= layers, "layers"
    )
    user.click("New data", "QTabBar")
    user.click("Open …")
    user.choose_file(next_files.table)
    user.click("Map new data")
    n = len(next_files.cells)
    user.wait_for(f"{n} cells placed in the map of {saved_file(files).name}*")
    save_by_return(user)
    placed = ad.read_h5ad(saved_file(next_files))
    assert (placed.obs["ce_label"].astype(str) == placed.obs["cell_type"].astype(str)).mean() > 0.8
    assert visible(user) >= {"D", "D_mask labels"}
    assert not visible(user) & {"A", "B", "C"}


def test_copy_the_placing(user: User, next_files: Files) -> None:
    """The copied script places the same cells at the same places."""
    placed = ad.read_h5ad(saved_file(next_files))
    made = run_copied(user, saved_file(next_files))
    np.testing.assert_allclose(made.obsm["X_ce"], placed.obsm["X_ce"], rtol=1e-4, atol=1e-4)


def test_close_again(user: User) -> None:
    """napari ends without a crash after another day."""
    assert user.close() == 0


def visible(user: User) -> set[str]:
    """Return the names of the layers that are shown."""
    return {name for name, _, shown in user.ask("tissue")["layers"] if shown}


def save_by_return(user: User) -> None:
    """Save the table under the proposed name."""
    user.click("Save", "QPushButton")
    user.click("Table as *", "QMenu")
    user.wait_until(lambda: user.ask("focus").startswith("QFileDialog"), "a dialog")
    user.key("Return")
    user.wait_for("Saved *.h5ad.")
