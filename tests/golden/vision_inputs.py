"""What transformers' models with vision towers are called with."""

from __future__ import annotations

from typing import Any

import torch
from vision_cases import IMAGE_PAD, Item, VisionCase


def item_inputs(case: VisionCase, items: list[tuple[Item, torch.Tensor]]) -> dict[str, Any]:
    """Of the items in a prompt, in order."""
    if case.axes == 1:
        pixels = [to_pixels(case, item, patches) for item, patches in items]
        return {"pixel_values": torch.cat(pixels)[None]} if pixels else {}
    out: dict[str, Any] = {}
    for video, pixels, grids in (
        (False, "pixel_values", "image_grid_thw"),
        (True, "pixel_values_videos", "video_grid_thw"),
    ):
        own = [entry for entry in items if entry[0].video == video]
        if own:
            out[pixels] = torch.cat([patches for _, patches in own])
            out[grids] = torch.tensor([item.grid for item, _ in own])
    clips = [item for item, _ in items if item.video]
    if clips and "tokens_per_second" in case.config["vision_config"]:
        rate = case.config["vision_config"]["tokens_per_second"]
        out["second_per_grid_ts"] = torch.tensor([item.step / rate for item in clips])
    return out


def own_rows(
    model: torch.nn.Module, case: VisionCase, item: Item, patches: torch.Tensor
) -> torch.Tensor:
    """What the tower gives for one item: [1 + added, rows, H]."""
    if case.axes == 1:
        out = model.model.get_image_features(to_pixels(case, item, patches)[None])
        return torch.cat(list(out.pooler_output))[None]
    grid = torch.tensor([item.grid])
    if case.pairs:
        features = model.model.get_video_features if item.video else model.model.get_image_features
        return torch.cat(list(features(patches, grid).pooler_output))[None]
    out = model.model.visual(patches, grid_thw=grid)
    added = getattr(out, "deepstack_features", None) or []
    return torch.stack([out.pooler_output, *added])


def modalities(case: VisionCase, ids: torch.Tensor) -> dict[str, Any]:
    """Which experts tokens go to, of models that have some for text and some for vision: by the
    token, generated ones too, as the makers and FastDeploy have it."""
    return {"moe_mm_token_type_ids": (ids >= IMAGE_PAD).int()} if case.pairs else {}


def to_pixels(case: VisionCase, item: Item, patches: torch.Tensor) -> torch.Tensor:
    """[tiles, 3, height, width] of patches that come row by row."""
    tiles, height, width = item.grid
    side = case.config["vision_config"]["patch_size"]
    grid = patches.reshape(tiles, height, width, 3, side, side)
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(tiles, 3, height * side, width * side)
