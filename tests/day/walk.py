"""A day with napari, walked by a real mouse: `make day`.

Each test is a part of the day, and goes on where the one before has ended.
"""

from __future__ import annotations

import subprocess
import sys

import anndata as ad
import numpy as np

from tests.day.data import Files
from tests.day.screen import View
from tests.day.user import User

RADIUS = 40
"""Radius of the lasso in pixels of the screen."""
KEYS = {"tumor": "1", "T cell": "2"}
"""The classes that are made by hand, and their keys."""
N_LABELS = 20
EPOCHS = 20
"""Epochs of each training, for a short walk; the default is 60."""


def lasso(user: User) -> None:
    """Draw a circle around the middle of the T cells in the map, which selects them."""
    cells = user.settled(lambda: user.ask("cells"), "the map stays as it is")
    names, places = np.array(cells["names"]), np.array(cells["places"])
    middle = np.median(places[np.array(cells["labels"]) == "T cell"], axis=0)
    angles, away = np.linspace(0, 2 * np.pi, 25), np.linalg.norm(places - middle, axis=1)
    user.drag(*middle + RADIUS * np.column_stack([np.cos(angles), np.sin(angles)]))
    # The mouse moves from pixel to pixel: the cells on the line may be inside or outside.
    inside, perhaps = set(names[away < RADIUS - 2]), set(names[away < RADIUS + 2])
    assert len(inside) > 10
    user.wait_until(lambda: inside <= set(user.selected()) <= perhaps, "the lasso selects cells")


def save_by_return(user: User, files: Files) -> ad.AnnData:
    """Save the table under the proposed name, and read it."""
    user.click("Save", "QPushButton", "Table as *")
    user.choose_file()
    user.wait_for(f"Saved {files.saved.name}.")
    return ad.read_h5ad(files.saved)


def run_copied(user: User, files: Files) -> ad.AnnData:
    """Copy the script of the saved table, run it, and return the table that it writes."""
    user.click("Save", "QPushButton", "Copy as Python")
    user.wait_for("Copied.*")
    command = [sys.executable, "-c", user.ask("clipboard")]
    subprocess.run(
        command, cwd=files.saved.parent, env=user.env | {"MPLBACKEND": "agg"}, check=True
    )
    return ad.read_h5ad(files.saved.with_name(f"{files.saved.stem}_ce.h5ad"))


def assert_shown(user: User, image: str) -> None:
    """Check that an image is shown with its cells, without its mask, and no other image."""
    names = {x for letter in "ABCD" for x in (letter, f"{letter}_mask", f"{letter}_mask labels")}
    assert set(user.ask("tissue")["shown"]) & names == {image, f"{image}_mask labels"}


def assert_same_map(first: ad.AnnData, second: ad.AnnData) -> None:
    np.testing.assert_allclose(first.obsm["X_ce"], second.obsm["X_ce"], rtol=1e-4, atol=1e-4)


def test_sample(user: User) -> None:
    """napari opens the plugin and the sample by its menus; the plugin draws the map by itself."""
    user.start()
    user.click("Plugins", "QMenuBar", "Centroid-Encoder*")
    user.wait_for("Sample tissue")
    user.click("File", "QMenuBar", "Open Sample", "Centroid-Encoder", "Synthetic tissue*")
    user.wait_for("draft: * held out wrong")
    lasso(user)
    user.click("Zoom to")


def test_close_sample(user: User) -> None:
    assert user.close() == 0


def test_drop_and_open(user: User, files: Files) -> None:
    """Images and masks are dropped on napari, and the table is opened in the plugin."""
    user.start("--with", "centroid-encoder")
    n = len(files.images)
    user.drop(files.images, 500, 400, lambda: user.ask("tissue")["n_layers"] == n)
    user.click("Open table …")
    user.choose_file(files.table)
    user.wait_for("draft: * held out wrong")
    user.wait_for("all", "QTabBar")
    user.dismiss_notifications()
    assert_shown(user, "A")


def test_lasso(user: User, files: Files) -> None:
    """A lasso in the map selects cells, and they are outlined in the image."""
    lasso(user)
    View(user, files, "A").check_outlines()


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
    view = View(user, files, "A")

    def follow() -> bool:
        # The scale goes from pale yellow to red.
        red, green, _ = user.screen().astype(int).transpose(2, 0, 1)
        return view.mean_of(red - green).corr(view.cells["CD3"], method="spearman") > 0.8

    user.wait_until(follow, "cells with much CD3 are red")


def test_gate(user: User, files: Files) -> None:
    """A handle beside the colours selects the cells with larger values."""
    gate = user.ready("Gate")
    left = gate["x"] - gate["width"] // 2
    user.drag((left + 8, gate["y"]), (left + 40, gate["y"]))
    user.wait_for("gate on CD3 against the rest")
    is_selected = files.cells.index.isin(user.settled(user.selected, "cells are selected"))
    values = files.cells["CD3"]
    assert values[is_selected].min() > values[~is_selected].max()
    View(user, files, "A").check_outlines()


def test_click(user: User, files: Files) -> None:
    """A click on a cell in the image selects it, and the card describes it."""
    view = View(user, files, "A")
    name, row = next(view.cells.iterrows())
    user.at(*view.place(row["cell_id"]))
    user.wait_for(f"{name} · cell_type: {row['cell_type']} · predicted: *")
    assert user.selected() == [name]
    view.check_outlines()


def test_picture_without_labels(user: User) -> None:
    """The principal components are shown in place of the map, and the map again."""
    user.click("map", "QToolButton", "principal components")
    user.wait_for("*made without labels: no error is known")
    lasso(user)
    user.click("map", "QToolButton", "Centroid-Encoder map")
    user.wait_for("draft: * held out wrong")


def test_label(user: User, files: Files) -> None:
    """Twenty cells get a label by a click and a key each, and the last one is undone."""
    user.click("Label", "QTabBar")
    user.click("Start labelling")
    user.click("new class, then Enter")
    for class_, key in KEYS.items():
        user.type(class_)
        user.key("Return")
        user.wait_for(f"{key} · {class_}  0*")
    view = View(user, files, "A")
    chosen = view.cells.groupby("cell_type").head(N_LABELS // len(KEYS))
    chosen = chosen[chosen["cell_type"].isin(list(KEYS))]
    for n, (name, row) in enumerate(chosen.iterrows(), start=1):
        user.at(*view.place(row["cell_id"]))
        user.wait_until(lambda name=name: user.selected() == [name], f"{name} is selected")
        user.key(KEYS[row["cell_type"]])
        user.wait_for(f"{n} of {len(files.cells)} labelled*")
    user.key("ctrl+z")
    user.wait_for(f"{N_LABELS - 1} of {len(files.cells)} labelled*")


def test_suggest(user: User, files: Files) -> None:
    """A suggested cell gets the proposed class by Enter."""
    # It is enabled when there is a live map.
    user.ready("Apply to all")
    user.click("Suggest")
    user.wait_for("1 of * · *")
    user.key("Return")
    user.wait_for(f"{N_LABELS} of {len(files.cells)} labelled*")
    user.click("Done")


def test_train(user: User) -> None:
    """The classes of the file are chosen again, and a map is trained on them."""
    user.click("☰", "QToolButton", "Cells, classes and features …")
    user.click("cell_type_by_hand", "QComboBox")
    user.click("cell_type", "QListView")
    user.click("☰", "QToolButton", "Cells, classes and features …")
    user.click("☰", "QToolButton", "Settings …")
    user.click("Epochs", "QLineEdit")
    user.type(str(EPOCHS))
    user.key("Tab", "Escape")
    user.click("Train")
    user.wait_for("[0-9]* held out wrong")


def test_check(user: User) -> None:
    """The labels are checked, and what was found is shown for review."""
    user.click("☰", "QToolButton", "Check labels")
    user.wait_for("*on images that the networks have seen:*")


def test_review(user: User, files: Files, decided: dict[str, str]) -> None:
    """Three doubtful labels are decided by keys: two are changed, one is kept."""
    first = user.ready("*", "TableView")
    assert first["height"] > 10, "no line of the list is in view"
    user.at(first["x"], first["y"])
    for n, key in enumerate(["Return", "k", "Return"], start=1):
        (name,) = user.wait_until(
            lambda: [x for x in user.selected() if x not in decided], "another cell is selected"
        )
        change = user.settled(lambda: user.places("Change to *"), "another class is proposed")
        decided[name] = "" if key == "k" else change[0]["text"].removeprefix("Change to ")
        user.key(key)
        user.wait_for(f"* of * ✓{n}")
    (name,) = user.settled(user.selected, "the next cell is selected")
    assert_shown(user, files.cells["image"][name])


def test_save(user: User, files: Files, decided: dict[str, str]) -> None:
    """Return saves the table under the proposed name; the file has all that was made."""
    before = files.table.read_bytes()
    saved = save_by_return(user, files)
    assert files.table.read_bytes() == before
    by_hand = saved.obs["cell_type_by_hand"].dropna()
    assert len(by_hand) == N_LABELS
    # One of the cells was suggested, and may be of any class.
    assert (by_hand == files.cells["cell_type"][by_hand.index]).sum() >= N_LABELS - 1
    new = saved.obs["cell_type_relabeled"].astype(str)
    changed = new[new != files.cells["cell_type"]].to_dict()
    assert changed == {name: label for name, label in decided.items() if label}
    assert saved.obsm["X_ce"].shape == (len(files.cells), 2)
    assert {"ce", "ce_cv", "ce_images_cv"} <= set(saved.uns)


def test_close(user: User) -> None:
    assert user.close() == 0


def test_open_again(user: User, files: Files) -> None:
    """Dropped on the plugin, the saved file and its images bring everything back."""
    user.start("--with", "centroid-encoder")
    dock, is_back = user.ready("Sample tissue"), lambda: user.places("[0-9]* held out wrong")
    user.drop([*files.images, files.saved], dock["x"], dock["y"] + 100, is_back)
    assert user.ask("cells")["labels"] == files.cells["cell_type"].tolist()
    user.click("Review *", "QTabBar")
    user.wait_for("* ✓3")
    user.click("Label", "QTabBar")
    user.click("Start labelling")
    user.wait_for(f"{N_LABELS} of {len(files.cells)} labelled*")
    user.click("Done")


def test_copy_the_training(user: User, files: Files) -> None:
    """The copied script trains the same map, and makes the same check."""
    saved, made = ad.read_h5ad(files.saved), run_copied(user, files)
    assert_same_map(made, saved)
    assert made.obs["ce_cv_label"].equals(saved.obs["ce_cv_label"])


def test_next_image(user: User, files: Files, next_files: Files) -> None:
    """The cells of the next image are placed in the map, and shown in this image."""
    n = user.ask("tissue")["n_layers"] + len(next_files.images)
    user.drop(next_files.images, 500, 400, lambda: user.ask("tissue")["n_layers"] >= n)
    user.click("New data", "QTabBar")
    user.click("Open …")
    user.choose_file(next_files.table)
    user.click("Map new data")
    user.wait_for(f"{len(next_files.cells)} cells placed in the map of {files.saved.name}*")
    placed = save_by_return(user, next_files)
    assert np.mean(placed.obs["ce_label"].astype(str) == next_files.cells["cell_type"]) > 0.8
    assert_shown(user, "D")


def test_copy_the_placing(user: User, next_files: Files) -> None:
    """The copied script places the same cells at the same places."""
    assert_same_map(run_copied(user, next_files), ad.read_h5ad(next_files.saved))


def test_an_image_that_fails(user: User, stained_files: Files) -> None:
    """Other stains change the classes, and a warning says how many may be wrong."""
    user.click("New data", "QTabBar")
    user.click("Open …")
    user.choose_file(stained_files.table)
    user.click("Map new data")
    user.wait_for("*of the labels may be wrong*")
    user.wait_for("[0-9]* cells placed, * differ from cell_type*")


def test_close_again(user: User, stained_files: Files) -> None:
    """The cells of the last image were not saved, which is said first."""
    assert user.close(unsaved=stained_files.table.name) == 0
