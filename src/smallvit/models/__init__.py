"""Our architectures, registered with timm on import: `timm.create_model("vit_nano", num_classes=10)`."""

import smallvit.models.architectures  # noqa: F401
