"""What transformers' models with vision towers are called with."""

from __future__ import annotations

import math
from typing import Any

import torch
from vision_cases import IMAGE_PAD, Item, VisionCase


def item_inputs(case: VisionCase, items: list[tuple[Item, torch.Tensor]]) -> dict[str, Any]:
    """Of the items in a prompt, in order."""
    if case.axes == 1:
        pixels = [to_pixels(case, item, patches) for item, patches in items]
        if not pixels:
            return {}
        return {"pixel_values": torch.cat(pixels) if is_gemma(case) else torch.cat(pixels)[None]}
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
        pixels = to_pixels(case, item, patches)
        out = model.model.get_image_features(pixels if is_gemma(case) else pixels[None])
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
    token, generated ones too, as the makers and FastDeploy have it. And Gemma's, which see each
    other."""
    if is_gemma(case) and bool((ids == IMAGE_PAD).any()):
        return {"token_type_ids": (ids == IMAGE_PAD).int()}
    return {"moe_mm_token_type_ids": (ids >= IMAGE_PAD).int()} if case.pairs else {}


def is_gemma(case: VisionCase) -> bool:
    return str(case.config["model_type"]).startswith("gemma")


def merge_of(case: VisionCase) -> int:
    """Patches a side of what becomes a row."""
    vision = case.config["vision_config"]
    if is_gemma(case):
        patches: int = vision["image_size"] // vision["patch_size"]
        return patches // math.isqrt(case.config["mm_tokens_per_image"])
    merge: int = case.config.get("scale_factor") or vision["spatial_merge_size"]
    return merge


def to_pixels(case: VisionCase, item: Item, patches: torch.Tensor) -> torch.Tensor:
    """[tiles, 3, height, width] of patches that come row by row, or Gemma's, square by square."""
    tiles, height, width = item.grid
    side = case.config["vision_config"]["patch_size"]
    merge = merge_of(case) if is_gemma(case) else 1
    squares = (height // merge, width // merge, merge, merge)
    grid = patches.reshape(tiles, *squares, 3, side, side).permute(0, 5, 1, 3, 6, 2, 4, 7)
    return grid.reshape(tiles, 3, height * side, width * side)
