"""Our architectures, registered with timm on import: `timm.create_model("vit_nano", num_classes=10)`."""

from smallvit.models import pvt, resnet, vit

__all__ = ["pvt", "resnet", "vit"]
