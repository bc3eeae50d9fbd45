"""Images as models see them: decoding untrusted files, sizes and visual tokens.

An image is fitted once, where it enters an episode or a training conversation: it is decoded safely and resized to the
exact size at which the model sees it. From there on every part of rlcore uses these bytes and their hash, so no later
stage resizes, and rewards, records, engines and the trainer see the same pixels.
"""

from rlcore.images.beside import side_by_side
from rlcore.images.encoding import check_image, data_uri, encode_image, image_size
from rlcore.images.fitting import ImageProcessor
from rlcore.images.messages import message_with_images

__all__ = [
    "ImageProcessor",
    "check_image",
    "data_uri",
    "encode_image",
    "image_size",
    "message_with_images",
    "side_by_side",
]
