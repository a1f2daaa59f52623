"""One small architecture per family of timm: the module it is defined in, its name, an image side, smaller sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Family:
    """How to build a small member of a family with random weights.

    Args:
        architecture: Its name for ``create_model``, or ``module:Class`` where that name fixes all sizes.
        side: Side of the images.
        sizes: Arguments that make it small.
        large: Whether millions of parameters remain, so that methods with a teacher would take seconds.
    """

    architecture: str
    side: int = 64
    sizes: dict[str, Any] = field(default_factory=dict)
    large: bool = False


_TOKENS = {"img_size": 32, "embed_dim": 48, "depth": 4, "num_heads": 2}
_STAGES = {"depths": (1, 1, 1, 1)}
_SWIN = {"img_size": 64, "embed_dim": 12, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 4)}

FAMILIES: dict[str, Family] = {
    "beit": Family("beit_base_patch16_224", 32, _TOKENS),
    "byoanet": Family("lambda_resnet26t", 32, {"width_factor": 0.25}),
    "byobnet": Family("test_byobnet"),
    "cait": Family("cait_xxs24_224", 32, _TOKENS),
    "coat": Family("coat_lite_tiny", 64, {"img_size": 64}),
    "convit": Family("convit_tiny", 32, {"img_size": 32, "depth": 4, "local_up_to_layer": 2}),
    "convmixer": Family("convmixer:ConvMixer", 28, {"dim": 64, "depth": 4, "kernel_size": 7, "patch_size": 7}),
    "convnext": Family("test_convnext"),
    "cpubone": Family("cpubone_nano"),
    "crossvit": Family("crossvit_tiny_240", 240, {"depth": [[1, 1, 0]] * 3}),
    "csatv2": Family("csatv2", 64, {"dims": (16, 24, 32, 48)}),
    "cspnet": Family("cs3darknet_s"),
    "davit": Family("davit_tiny", 64, {**_STAGES, "embed_dims": (16, 32, 48, 64), "num_heads": (1, 2, 3, 4)}),
    "deepseek_vit": Family("deepseek_vit_412m", 56, {"img_size": 56, "embed_dim": 48, "depth": 4, "num_heads": 2}),
    "deit": Family("deit_tiny_patch16_224", 32, {"img_size": 32, "depth": 4}),
    "densenet": Family("densenet121", 64, {"growth_rate": 8, "block_config": (2, 2, 2, 2)}),
    "dla": Family("dla46x_c"),
    "dpn": Family("dpn48b", 32, {"k_sec": (1, 1, 1, 1)}),
    "edgenext": Family("edgenext_xx_small"),
    "efficientformer": Family("efficientformer_l1", 224, {"embed_dims": (16, 32, 48, 64), "depths": (1, 1, 1, 2)}),
    "efficientformer_v2": Family("efficientformerv2_s0", 64, {"img_size": 64}),
    "efficientnet": Family("mnasnet_small"),
    "efficientvim": Family("efficientvim_m1", 64, {"embed_dim": (32, 48, 64)}),
    "efficientvit_mit": Family("efficientvit_b0"),
    "efficientvit_msra": Family("efficientvit_m0", 64, {"img_size": 64}),
    "eva": Family("eva02_tiny_patch14_224", 28, {"img_size": 28, "depth": 4}),
    "fasternet": Family("fasternet_t0"),
    "fastvit": Family("fastvit_t8", 32),
    "focalnet": Family("focalnet:FocalNet", 32, {"embed_dim": 16, **_STAGES}),
    "gcvit": Family(
        "gcvit:GlobalContextVit", 64, {"img_size": 64, "embed_dim": 16, "num_heads": (1, 1, 2, 2), **_STAGES}
    ),
    "gemma4_vit": Family("gemma4_vit_167m", 96, {"img_size": 96, "embed_dim": 48, "depth": 4, "num_heads": 2}),
    "ghostnet": Family("ghostnet_050"),
    "hardcorenas": Family("hardcorenas_a"),
    "hgnet": Family("hgnetv2_b0", 32),
    "hiera": Family("hiera_tiny_224", 64, {"img_size": (64, 64), "embed_dim": 16, "num_heads": 1}),
    "hieradet_sam2": Family("sam2_hiera_tiny", 64, {"embed_dim": 16, "num_heads": 1, "stages": (1, 1, 2, 1)}),
    "hrnet": Family("hrnet_w18_small", 32, large=True),
    "iformer": Family("iformer_t"),
    "inception_next": Family("inception_next_atto"),
    "inception_resnet_v2": Family("inception_resnet_v2", 96, large=True),
    "inception_v3": Family("inception_v3", 96, large=True),
    "inception_v4": Family("inception_v4", 96, large=True),
    "lcnetv2": Family("lcnetv2_small", 32),
    "levit": Family("levit_128s", 64, {"img_size": 64}),
    "lowformer": Family("lowformer_b0", 32, large=True),
    "mambaout": Family("test_mambaout"),
    "maxxvit": Family("maxvit_pico_rw_256", 64, {"img_size": 64}),
    "metaformer": Family("poolformerv2_s12", 32),
    "mlp_mixer": Family("gmlp_ti16_224", 32, {"img_size": 32}),
    "mobilenetv3": Family("mobilenetv3_small_050"),
    "mobilenetv5": Family("mobilenetv5_base", 64, {"channel_multiplier": 0.25}, large=True),
    "mobilevit": Family("mobilevit_xxs"),
    "mvitv2": Family("mvitv2_tiny", 64, {"img_size": 64}, large=True),
    "naflexvit": Family("naflexvit_base_patch16_gap", 32, {"embed_dim": 48, "depth": 4, "num_heads": 2}),
    "nasnet": Family("nasnetalarge", 96, {"num_features": 192, "channel_multiplier": 2, "stem_size": 8}),
    "nest": Family(
        "nest:Nest", 64, {"img_size": 64, "embed_dims": (24, 48, 96), "num_heads": (1, 2, 4), "depths": (1, 1, 2)}
    ),
    "nextvit": Family("nextvit_small", large=True),
    "nfnet": Family("test_nfnet"),
    "pit": Family("pit_ti_224", 64, {"img_size": 64}),
    "pnasnet": Family("pnasnet5large", 96, large=True),
    "pvt_v2": Family("pvt_v2_b0"),
    "qwen3_vit": Family("qwen3_vit_88m", 64, {"img_size": 64, "embed_dim": 48, "depth": 4, "num_heads": 2}),
    "rdnet": Family("rdnet_tiny", 64, {"growth_rates": (16, 16, 16, 16, 16, 16, 16)}),
    "regnet": Family("regnetx_002"),
    "repghost": Family("repghostnet_050"),
    "repvit": Family("repvit_m0_9"),
    "res2net": Family("res2next50", 64, {"layers": (1, 1, 1, 1)}),
    "resnest": Family("resnest14d", 32, {"base_width": 16}),
    "resnet": Family("resnet10t"),
    "resnetv2": Family("resnetv2_18", 32, {"channels": (16, 32, 48, 64), "stem_chs": 16}),
    "rexnet": Family("rexnet_100"),
    "selecsls": Family("selecsls42", large=True),
    "senet": Family("legacy_seresnet18", 32, {"layers": [1, 1, 1, 1]}),
    "sequencer": Family("sequencer2d_s", 64, {"img_size": 64, "layers": (1, 1, 1, 1), "embed_dims": (16, 16, 16, 16)}),
    "shvit": Family("shvit_s1"),
    "sknet": Family("skresnet18", 32, {"channels": (16, 32, 48, 64)}),
    "starnet": Family("starnet_s050"),
    "swiftformer": Family("swiftformer_xs"),
    "swin_transformer": Family("swin_tiny_patch4_window7_224", 64, {**_SWIN, "window_size": 4}),
    "swin_transformer_v2": Family("swinv2_tiny_window8_256", 64, {**_SWIN, "window_size": 4}),
    "swin_transformer_v2_cr": Family("swinv2_cr_tiny_224", 64, _SWIN),
    "tiny_vit": Family("tiny_vit_5m_224", 64),
    "tnt": Family("tnt_s_patch16_224", 32, {"img_size": 32, "depth": 4}),
    "tresnet": Family("tresnet_m", 64, {"layers": (1, 1, 1, 1), "width_factor": 0.25}),
    "twins": Family("twins_svt_small", 64, {"depths": (1, 1, 2, 1)}),
    "vgg": Family("vgg11_bn", 32, large=True),
    "visformer": Family("visformer_tiny", 64, {"img_size": 64}),
    "vision_transformer": Family("test_vit"),
    "vision_transformer_hybrid": Family("vit_tiny_r_s16_p8_224", 64, {"img_size": 64, "depth": 4}),
    "vision_transformer_relpos": Family("vit_relpos_small_patch16_rpn_224", 32, _TOKENS),
    "vision_transformer_sam": Family("samvit_base_patch16_224", 32, _TOKENS),
    "vitamin": Family("vitamin_small_224", 64, {"img_size": 64}, large=True),
    "volo": Family(
        "volo:VOLO",
        64,
        {"img_size": 64, "layers": (1, 1, 1, 1), "embed_dims": (24, 48, 48, 48), "num_heads": (1, 2, 2, 2)},
    ),
    "vovnet": Family("ese_vovnet19b_slim_dw"),
    "xception": Family("legacy_xception", large=True),
    "xception_aligned": Family("xception41p", large=True),
    "xcit": Family("xcit_nano_12_p8_224", 32, {"img_size": 32, "depth": 4}),
}
