"""Rotations in space. Quaternions are unit quaternions with w first."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


def matrix_of(quaternion: Array) -> Array:
    """(3, 3) rotation matrix of a quaternion (4,)."""
    w, x, y, z = (float(value) for value in quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def quaternion_of(matrix: Array) -> Array:
    """(4,) quaternion of a rotation matrix (3, 3), with w of at least 0 (Shepperd, 1978)."""
    diagonal = np.diagonal(matrix)
    choices = np.array([diagonal.sum(), *diagonal])
    largest = int(np.argmax(choices))
    if largest == 0:
        w = 1 + choices[0]
        values = [w, matrix[2, 1] - matrix[1, 2], matrix[0, 2] - matrix[2, 0], matrix[1, 0] - matrix[0, 1]]
    else:
        i = largest - 1
        j, k = (i + 1) % 3, (i + 2) % 3
        values = [0.0] * 4
        values[0] = matrix[k, j] - matrix[j, k]
        values[1 + i] = 1 + matrix[i, i] - matrix[j, j] - matrix[k, k]
        values[1 + j] = matrix[j, i] + matrix[i, j]
        values[1 + k] = matrix[k, i] + matrix[i, k]
    quaternion = np.array(values, dtype=float)
    quaternion /= np.linalg.norm(quaternion)
    return quaternion if quaternion[0] >= 0 else -quaternion


def matrix_of_vector(vector: Array) -> Array:
    """(3, 3) rotation around a vector (3,) by its length in radians (Rodrigues)."""
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = vector / angle
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    rotated: Array = np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * (cross @ cross)
    return rotated


def downward(yaw: float) -> Array:
    """(4,) quaternion of a tool that points down, turned by `yaw` radians around the vertical.

    A tool's x axis is the direction that it points to, and its fingers close along its y axis. At a yaw of 0, they
    close along the world's y axis.
    """
    half = yaw / 2
    # A rotation around z by yaw after one around y by a quarter turn.
    c = math.sqrt(0.5)
    return np.array([c * math.cos(half), -c * math.sin(half), c * math.cos(half), c * math.sin(half)])


def vector_of_matrix(matrix: Array) -> Array:
    """(3,) rotation vector of a rotation matrix (3, 3): the inverse of `matrix_of_vector`, for angles up to π."""
    w, *axis = quaternion_of(matrix).tolist()
    length = float(np.linalg.norm(axis))
    angle = 2 * math.atan2(length, w)
    return np.array(axis) * (angle / length if length > 1e-12 else 2.0)
