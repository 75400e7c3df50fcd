"""
How to call functions of TensorFlow that do not take the same small tensor for each of their
required arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable

FLOAT: Final = tf.constant([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
INT: Final = tf.constant([[0, 1, 1], [1, 0, 1]])
VECTOR: Final = tf.constant([0.1, 0.2, 0.3])
INDEX: Final = tf.constant([0, 1, 1])
ROWS: Final = tf.constant([[0], [1]])
COMPLEX: Final = tf.cast(FLOAT, tf.complex64)
TEXT: Final = tf.constant(["ab c", "d"])
SQUARE: Final = tf.constant([[2.0, 0.5], [0.5, 1.0]])
WAVE: Final = tf.reshape(tf.range(64.0), (1, 64))
LINE: Final = tf.reshape(tf.range(12.0), (1, 4, 3))
IMAGE: Final = tf.reshape(tf.range(48.0), (1, 4, 4, 3)) / 48
VOLUME: Final = tf.reshape(tf.range(24.0), (1, 2, 2, 2, 3))
PIXELS: Final = tf.cast(IMAGE[0] * 255, tf.uint8)
RAGGED: Final = tf.ragged.constant([[1.0, 2.0], [3.0]])
SPARSE: Final = tf.sparse.from_dense(INT)
IDS: Final = tf.SparseTensor([[0, 0], [1, 1]], tf.constant([0, 1], tf.int64), [2, 2])
BOXES: Final = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])
QUINT: Final = tf.quantization.quantize(IMAGE, 0.0, 1.0, tf.quint8).output
WIDE: Final = tf.cast(INT, tf.int64)
LOGITS: Final = tf.reshape(tf.range(24.0), (4, 2, 3)) / 24
EXAMPLE: Final = tf.train.Example(
    features=tf.train.Features(
        feature={"x": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0]))}
    )
).SerializeToString()
FEATURES: Final = {"x": tf.io.FixedLenFeature([1], tf.float32)}
SEQUENCE: Final = {"x": tf.io.VarLenFeature(tf.float32)}
BMP: Final = b"BM:\0\0\0\0\0\0\x006\0\0\0(\0\0\0\1\0\0\0\1\0\0\0\1\0\x18\0\0\0\0\0\4\0\0\0" + bytes(
    20
)
GIF: Final = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
WEBP: Final = bytes.fromhex("524946461a000000574542505650384c0d0000002f00000010071011118888fe0700")

K1: Final = tf.ones((2, 3, 2))
K2: Final = tf.ones((2, 2, 3, 2))
K3: Final = tf.ones((1, 1, 1, 3, 2))
BACK: Final = tf.ones((1, 4, 4, 2))
ONES: Final = [1, 1, 1, 1]


def traced(call: Callable[[], Any]) -> None:
    """Trace a call whose op has no kernel for CPUs, or exists in graphs only."""
    tf.function(call, autograph=False).get_concrete_function()


def rejected(call: Callable[[], Any]) -> None:
    """
    Call with bytes that are no image: the function decodes them itself, and nothing here encodes
    any.
    """
    try:
        call()
    except tf.errors.InvalidArgumentError:
        return
    raise AssertionError


_CALLS: Final[tuple[tuple[str, Callable[[Callable[..., Any]], Any]], ...]] = (
    ("__operators__.ragged_getitem", lambda f: f(RAGGED, 0)),
    (
        "batch_to_space batch_to_space_nd compat.v1.batch_to_space_nd",
        lambda f: f(tf.ones((4, 2, 2, 1)), [2, 2], [[0, 0], [0, 0]]),
    ),
    ("compat.v1.batch_to_space", lambda f: f(tf.ones((4, 2, 2, 1)), [[0, 0], [0, 0]], 2)),
    ("bitcast", lambda f: f(FLOAT, tf.int32)),
    ("broadcast_static_shape", lambda f: f(tf.TensorShape([2, 3]), tf.TensorShape([3]))),
    ("conv", lambda f: f(IMAGE, K2, [1, 1, 1, 1], "SAME")),
    ("conv2d_backprop_filter_v2", lambda f: traced(lambda: f(IMAGE, K2, BACK, ONES, "SAME"))),
    ("conv2d_backprop_input_v2", lambda f: traced(lambda: f(IMAGE, K2, BACK, ONES, "SAME"))),
    ("dynamic_partition ragged.stack_dynamic_partitions", lambda f: f(FLOAT, [0, 1], 2)),
    ("einsum", lambda f: f("ij,ij->i", FLOAT, FLOAT)),
    ("extract_volume_patches", lambda f: f(VOLUME, [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], "SAME")),
    ("fftnd ifftnd signal.fftnd signal.ifftnd", lambda f: traced(lambda: f(COMPLEX, [3], [1]))),
    ("irfftnd signal.irfftnd", lambda f: traced(lambda: f(COMPLEX, [4], [1]))),
    ("rfftnd signal.rfftnd", lambda f: traced(lambda: f(FLOAT, [3], [1]))),
    ("fill", lambda f: f([2, 3], 1.0)),
    ("gather_nd compat.v1.gather_nd", lambda f: f(FLOAT, ROWS)),
    ("histogram_fixed_width histogram_fixed_width_bins", lambda f: f(FLOAT, [0.0, 1.0])),
    ("parallel_stack", lambda f: traced(lambda: f([FLOAT, FLOAT]))),
    (
        "ragged_fill_empty_rows",
        lambda f: f(tf.constant([0, 2], tf.int64), [1.0, 2.0], tf.constant(3, tf.int64), 0.0),
    ),
    ("random_index_shuffle", lambda f: f(1, tf.constant([1, 2, 3], tf.uint32), 5)),
    ("reverse_sequence", lambda f: f(FLOAT, [1, 2], seq_axis=1, batch_axis=0)),
    ("roll", lambda f: f(FLOAT, 1, 0)),
    ("scatter_nd", lambda f: f(ROWS, FLOAT, [2, 3])),
    (
        (
            "tensor_scatter_nd_add tensor_scatter_nd_max tensor_scatter_nd_min "
            "tensor_scatter_nd_sub "
            "tensor_scatter_nd_update"
        ),
        lambda f: f(FLOAT, ROWS, FLOAT),
    ),
    ("slice", lambda f: f(FLOAT, [0, 0], [1, 1])),
    ("strided_slice", lambda f: f(FLOAT, [0, 0], [1, 1])),
    ("space_to_batch space_to_batch_nd", lambda f: f(IMAGE, [2, 2], [[0, 0], [0, 0]])),
    ("compat.v1.nn.space_to_batch", lambda f: f(IMAGE, [[0, 0], [0, 0]], 2)),
    ("tile", lambda f: f(FLOAT, [1, 2])),
    ("unravel_index", lambda f: f([1, 2], [2, 3])),
    ("audio.decode_wav", lambda f: f(tf.audio.encode_wav(tf.ones((8, 1)), 8000))),
    ("audio.encode_wav", lambda f: f(tf.ones((8, 1)), 8000)),
    ("compat.v1.arg_max compat.v1.arg_min", lambda f: f(FLOAT, 1)),
    (
        (
            "compat.v1.debugging.assert_all_finite debugging.assert_all_finite "
            "debugging.check_numerics"
        ),
        lambda f: f(FLOAT, "no numbers"),
    ),
    (
        (
            "compat.v1.debugging.assert_greater debugging.assert_greater "
            "compat.v1.debugging.assert_none_equal debugging.assert_none_equal"
        ),
        lambda f: f(FLOAT + 1, FLOAT),
    ),
    ("compat.v1.debugging.assert_less debugging.assert_less", lambda f: f(FLOAT, FLOAT + 1)),
    (
        (
            "compat.v1.debugging.assert_negative debugging.assert_negative "
            "compat.v1.debugging.assert_non_positive debugging.assert_non_positive"
        ),
        lambda f: f(-FLOAT),
    ),
    ("compat.v1.debugging.assert_shapes debugging.assert_shapes", lambda f: f([(FLOAT, (2, 3))])),
    ("compat.v1.debugging.assert_type debugging.assert_type", lambda f: f(FLOAT, tf.float32)),
    ("debugging.Assert", lambda f: f(True, [FLOAT])),
    ("compat.v1.decode_raw io.decode_raw", lambda f: f(tf.constant(["abcd"]), tf.uint8)),
    ("compat.v1.expand_dims expand_dims", lambda f: f(FLOAT, 0)),
    (
        "compat.v1.image.crop_and_resize image.crop_and_resize",
        lambda f: f(IMAGE, BOXES[0], [0], [2, 2]),
    ),
    (
        "compat.v1.image.draw_bounding_boxes image.draw_bounding_boxes",
        lambda f: f(IMAGE, BOXES, colors=[[1.0, 0.0, 0.0]]),
    ),
    (
        "compat.v1.image.extract_glimpse image.extract_glimpse",
        lambda f: f(IMAGE, [2, 2], [[0.0, 0.0]]),
    ),
    (
        "compat.v1.image.extract_image_patches image.extract_patches",
        lambda f: f(IMAGE, [1, 2, 2, 1], ONES, ONES, "VALID"),
    ),
    (
        "compat.v1.image.resize_image_with_pad image.resize_with_pad image.resize_with_crop_or_pad",
        lambda f: f(IMAGE, 2, 6),
    ),
    (
        "compat.v1.image.sample_distorted_bounding_box image.sample_distorted_bounding_box",
        lambda f: f([8, 8, 3], BOXES, min_object_covered=0.1),
    ),
    ("image.stateless_sample_distorted_bounding_box", lambda f: f([8, 8, 3], BOXES, [1, 2])),
    ("compat.v1.io.decode_csv io.decode_csv", lambda f: f(tf.constant(["1,2"]), [[0], [0]])),
    ("compat.v1.io.parse_example io.parse_example", lambda f: f(tf.constant([EXAMPLE]), FEATURES)),
    (
        "compat.v1.io.parse_single_example io.parse_single_example",
        lambda f: f(tf.constant(EXAMPLE), FEATURES),
    ),
    ("io.parse_sequence_example", lambda f: f(tf.constant([EXAMPLE]), SEQUENCE)),
    ("io.parse_single_sequence_example", lambda f: f(tf.constant(EXAMPLE), SEQUENCE)),
    ("io.decode_json_example", lambda f: f(tf.constant(["{}"]))),
    ("io.parse_tensor", lambda f: f(tf.io.serialize_tensor(FLOAT), tf.float32)),
    ("io.deserialize_many_sparse", lambda f: f(tf.io.serialize_many_sparse(SPARSE), tf.int32)),
    (
        "io.decode_jpeg io.decode_image io.extract_jpeg_shape",
        lambda f: f(tf.io.encode_jpeg(PIXELS)),
    ),
    ("io.decode_and_crop_jpeg", lambda f: f(tf.io.encode_jpeg(PIXELS), [0, 0, 2, 2])),
    ("io.decode_png", lambda f: f(tf.io.encode_png(PIXELS))),
    ("io.decode_bmp", lambda f: f(BMP)),
    ("io.decode_gif", lambda f: f(GIF)),
    ("io.decode_webp", lambda f: f(WEBP)),
    ("io.decode_jxl", lambda f: rejected(lambda: f(b"\xff\x0a\x00"))),
    ("io.decode_base64", lambda f: f(tf.constant("YWI"))),
    ("io.encode_png io.encode_jpeg", lambda f: f(PIXELS)),
    ("compat.v1.math.count_nonzero", lambda f: f(FLOAT)),
    ("compat.v1.math.in_top_k", lambda f: f(FLOAT, [0, 1], 1)),
    ("math.in_top_k", lambda f: f([0, 1], FLOAT, 1)),
    ("keras.backend.in_top_k", lambda f: f(FLOAT, [0, 1], 1)),
    (
        (
            "compat.v1.nn.avg_pool nn.avg_pool compat.v1.nn.max_pool nn.max_pool nn.avg_pool2d "
            "nn.max_pool2d"
        ),
        lambda f: f(IMAGE, [1, 2, 2, 1], ONES, "SAME"),
    ),
    (
        "compat.v1.nn.max_pool_with_argmax nn.max_pool_with_argmax",
        lambda f: f(IMAGE, [1, 2, 2, 1], ONES, "SAME"),
    ),
    ("nn.avg_pool1d nn.max_pool1d", lambda f: f(LINE, 2, 1, "SAME")),
    ("nn.avg_pool3d nn.max_pool3d", lambda f: f(VOLUME, 2, 1, "SAME")),
    (
        "compat.v1.nn.batch_norm_with_global_normalization nn.batch_norm_with_global_normalization",
        lambda f: f(IMAGE, VECTOR, VECTOR, VECTOR, VECTOR, 0.1, True),
    ),
    ("compat.v1.nn.conv1d nn.conv1d", lambda f: f(LINE, K1, 1, "SAME")),
    ("compat.v1.nn.conv2d nn.conv2d", lambda f: f(IMAGE, K2, ONES, "SAME")),
    ("compat.v1.nn.conv3d nn.conv3d", lambda f: f(VOLUME, K3, [1, 1, 1, 1, 1], "SAME")),
    ("compat.v1.nn.conv2d_backprop_filter", lambda f: f(IMAGE, [2, 2, 3, 2], BACK, ONES, "SAME")),
    ("compat.v1.nn.conv2d_backprop_input", lambda f: f([1, 4, 4, 3], K2, BACK, ONES, "SAME")),
    (
        "compat.v1.nn.conv3d_backprop_filter",
        lambda f: f(VOLUME, [1, 1, 1, 3, 2], tf.ones((1, 2, 2, 2, 2)), [1, 1, 1, 1, 1], "SAME"),
    ),
    (
        "compat.v1.nn.conv2d_transpose nn.conv2d_transpose",
        lambda f: f(BACK, K2, [1, 4, 4, 3], ONES),
    ),
    (
        "compat.v1.nn.conv3d_transpose nn.conv3d_transpose",
        lambda f: f(tf.ones((1, 2, 2, 2, 2)), K3, [1, 2, 2, 2, 3], [1, 1, 1, 1, 1]),
    ),
    ("nn.conv1d_transpose", lambda f: f(tf.ones((1, 4, 2)), K1, [1, 4, 3], 1)),
    ("nn.conv_transpose", lambda f: f(BACK, K2, [1, 4, 4, 3], 1)),
    ("compat.v1.nn.convolution nn.convolution", lambda f: f(IMAGE, K2, padding="SAME")),
    (
        "compat.v1.nn.ctc_beam_search_decoder nn.ctc_beam_search_decoder nn.ctc_greedy_decoder",
        lambda f: f(LOGITS, [4, 4]),
    ),
    (
        "compat.v1.nn.ctc_loss",
        lambda f: f(tf.SparseTensor([[0, 0], [1, 0]], [0, 1], [2, 1]), LOGITS, [4, 4]),
    ),
    ("compat.v1.nn.ctc_loss_v2 nn.ctc_loss", lambda f: f([[1], [2]], LOGITS, [1, 1], [4, 4])),
    ("compat.v1.nn.depth_to_space nn.depth_to_space", lambda f: f(tf.ones((1, 2, 2, 4)), 2)),
    ("compat.v1.nn.space_to_depth nn.space_to_depth", lambda f: f(IMAGE, 2)),
    (
        "compat.v1.nn.depthwise_conv2d nn.depthwise_conv2d compat.v1.nn.depthwise_conv2d_native",
        lambda f: f(IMAGE, K2, ONES, "SAME"),
    ),
    ("nn.depthwise_conv2d_backprop_filter", lambda f: f(IMAGE, [2, 2, 3, 1], IMAGE, ONES, "SAME")),
    (
        "nn.depthwise_conv2d_backprop_input",
        lambda f: f([1, 4, 4, 3], tf.ones((2, 2, 3, 1)), IMAGE, ONES, "SAME"),
    ),
    ("compat.v1.nn.dilation2d", lambda f: f(IMAGE, tf.ones((2, 2, 3)), ONES, ONES, "SAME")),
    ("compat.v1.nn.erosion2d", lambda f: f(IMAGE, tf.ones((2, 2, 3)), ONES, ONES, "SAME")),
    (
        "nn.dilation2d nn.erosion2d",
        lambda f: f(IMAGE, tf.ones((2, 2, 3)), ONES, "SAME", "NHWC", ONES),
    ),
    ("compat.v1.nn.dropout nn.dropout", lambda f: f(FLOAT, rate=0.5)),
    (
        "compat.v1.nn.embedding_lookup_sparse nn.embedding_lookup_sparse",
        lambda f: f(FLOAT, IDS, None),
    ),
    (
        "compat.v1.nn.safe_embedding_lookup_sparse nn.safe_embedding_lookup_sparse",
        lambda f: f(FLOAT, IDS),
    ),
    (
        (
            "compat.v1.nn.fractional_avg_pool nn.fractional_avg_pool "
            "compat.v1.nn.fractional_max_pool "
            "nn.fractional_max_pool"
        ),
        lambda f: f(IMAGE, [1.0, 1.5, 1.5, 1.0]),
    ),
    ("compat.v1.nn.fused_batch_norm", lambda f: f(IMAGE, VECTOR, VECTOR)),
    (
        (
            "compat.v1.nn.nce_loss nn.nce_loss compat.v1.nn.sampled_softmax_loss "
            "nn.sampled_softmax_loss"
        ),
        lambda f: f(tf.ones((4, 3)), tf.ones(4), tf.constant([[0], [1]], tf.int64), FLOAT, 2, 4),
    ),
    ("compat.v1.nn.pool nn.pool", lambda f: f(IMAGE, [2, 2], "MAX", padding="SAME")),
    (
        "compat.v1.nn.quantized_avg_pool compat.v1.nn.quantized_max_pool",
        lambda f: f(QUINT, 0.0, 1.0, [1, 2, 2, 1], ONES, "SAME"),
    ),
    (
        "compat.v1.nn.quantized_conv2d",
        lambda f: f(
            QUINT,
            tf.quantization.quantize(K2, 0.0, 1.0, tf.quint8).output,
            0.0,
            1.0,
            0.0,
            1.0,
            ONES,
            "SAME",
        ),
    ),
    ("compat.v1.nn.quantized_relu_x", lambda f: traced(lambda: f(QUINT, 1.0, 0.0, 1.0))),
    ("quantization.dequantize", lambda f: f(QUINT, 0.0, 1.0)),
    ("quantization.quantize compat.v1.quantize_v2", lambda f: f(FLOAT, 0.0, 1.0, tf.quint8)),
    ("quantization.quantized_concat", lambda f: f(0, [QUINT, QUINT], [0.0, 0.0], [1.0, 1.0])),
    (
        "compat.v1.nn.relu_layer compat.v1.nn.xw_plus_b",
        lambda f: f(FLOAT, tf.ones((3, 2)), tf.ones(2)),
    ),
    (
        "compat.v1.nn.separable_conv2d nn.separable_conv2d",
        lambda f: f(IMAGE, tf.ones((2, 2, 3, 1)), tf.ones((1, 1, 3, 2)), ONES, "SAME"),
    ),
    (
        "compat.v1.nn.sigmoid_cross_entropy_with_logits nn.sigmoid_cross_entropy_with_logits",
        lambda f: f(labels=FLOAT, logits=FLOAT),
    ),
    ("compat.v1.nn.softmax_cross_entropy_with_logits", lambda f: f(labels=FLOAT, logits=FLOAT)),
    (
        (
            "compat.v1.nn.sparse_softmax_cross_entropy_with_logits "
            "nn.sparse_softmax_cross_entropy_with_logits"
        ),
        lambda f: f(labels=[0, 1], logits=FLOAT),
    ),
    (
        "compat.v1.nn.weighted_cross_entropy_with_logits",
        lambda f: f(labels=FLOAT, logits=FLOAT, pos_weight=2.0),
    ),
    ("compat.v1.nn.sufficient_statistics nn.sufficient_statistics", lambda f: f(FLOAT, [0])),
    ("compat.v1.random.multinomial random.categorical", lambda f: f(FLOAT, 2)),
    (
        "compat.v1.random.stateless_multinomial random.stateless_categorical",
        lambda f: f(FLOAT, 2, [1, 2]),
    ),
    ("compat.v1.sparse_to_dense", lambda f: f([0, 2], [3], [1.0, 2.0])),
    ("compat.v1.strings.split", lambda f: f(TEXT)),
    ("compat.v1.strings.substr compat.v1.substr strings.substr", lambda f: f(TEXT, 0, 1)),
    (
        "compat.v1.strings.to_hash_bucket strings.to_hash_bucket strings.to_hash_bucket_fast",
        lambda f: f(TEXT, 5),
    ),
    ("strings.to_hash_bucket_strong", lambda f: f(TEXT, 5, [1, 2])),
    ("compat.v1.strings.to_number strings.to_number", lambda f: f(tf.constant(["1.5"]))),
    ("strings.format", lambda f: f("{}", FLOAT)),
    ("strings.ngrams", lambda f: f(TEXT, 1)),
    ("strings.join", lambda f: f([TEXT, TEXT])),
    ("strings.regex_full_match", lambda f: f(TEXT, "a.*")),
    ("strings.regex_replace", lambda f: f(TEXT, "a", "b")),
    (
        (
            "strings.unicode_decode strings.unicode_decode_with_offsets strings.unicode_split "
            "strings.unicode_split_with_offsets"
        ),
        lambda f: f(TEXT, "UTF-8"),
    ),
    ("strings.unicode_encode", lambda f: f([97, 98], "UTF-8")),
    ("strings.unicode_transcode", lambda f: f(TEXT, "UTF-8", "UTF-16-BE")),
    ("strings.unsorted_segment_join", lambda f: f(TEXT, [0, 0], 1)),
    (
        (
            "image.adjust_brightness image.adjust_contrast image.adjust_hue "
            "image.adjust_saturation "
            "image.central_crop image.random_brightness image.random_hue"
        ),
        lambda f: f(IMAGE, 0.5),
    ),
    ("image.adjust_jpeg_quality", lambda f: f(PIXELS, 90)),
    ("image.random_contrast image.random_saturation", lambda f: f(IMAGE, 0.5, 1.5)),
    (
        "image.stateless_random_contrast image.stateless_random_saturation",
        lambda f: f(IMAGE, 0.5, 1.5, [1, 2]),
    ),
    ("image.random_jpeg_quality", lambda f: f(PIXELS, 80, 90)),
    ("image.stateless_random_jpeg_quality", lambda f: f(PIXELS, 80, 90, [1, 2])),
    (
        "image.stateless_random_hue image.stateless_random_brightness",
        lambda f: f(IMAGE, 0.5, [1, 2]),
    ),
    (
        "image.combined_non_max_suppression",
        lambda f: f(BOXES[:, :, tf.newaxis], tf.ones((1, 1, 1)), 1, 1),
    ),
    ("image.crop_to_bounding_box", lambda f: f(IMAGE, 1, 1, 2, 2)),
    ("image.pad_to_bounding_box", lambda f: f(IMAGE, 1, 1, 6, 6)),
    ("image.grayscale_to_rgb", lambda f: f(IMAGE[..., :1])),
    (
        "image.non_max_suppression image.non_max_suppression_with_scores",
        lambda f: f(BOXES[0], [1.0], 1),
    ),
    (
        "image.non_max_suppression_padded",
        lambda f: f(BOXES[0], [1.0], 1, pad_to_max_output_size=True),
    ),
    ("image.non_max_suppression_overlaps", lambda f: f(SQUARE, [1.0, 0.5], 1)),
    (
        "image.generate_bounding_box_proposals",
        lambda f: traced(
            lambda: f(
                tf.ones((1, 1, 1, 1)), tf.ones((1, 1, 1, 4)), tf.ones((1, 5)), tf.ones((1, 1, 4))
            )
        ),
    ),
    ("image.psnr image.ssim", lambda f: f(tf.ones((1, 16, 16, 3)), tf.ones((1, 16, 16, 3)), 1.0)),
    (
        "image.ssim_multiscale",
        lambda f: f(tf.ones((1, 176, 176, 1)), tf.ones((1, 176, 176, 1)), 1.0),
    ),
    ("keras.backend.bias_add nn.bias_add", lambda f: f(IMAGE, VECTOR)),
    ("keras.backend.conv1d", lambda f: f(LINE, K1)),
    ("keras.backend.conv2d", lambda f: f(IMAGE, K2)),
    ("keras.backend.conv3d", lambda f: f(VOLUME, K3)),
    ("keras.backend.depthwise_conv2d", lambda f: f(IMAGE, tf.ones((2, 2, 3, 1)))),
    ("keras.backend.conv2d_transpose", lambda f: f(BACK, K2, (1, 4, 4, 3), padding="same")),
    (
        "keras.backend.separable_conv2d",
        lambda f: f(IMAGE, tf.ones((2, 2, 3, 1)), tf.ones((1, 1, 3, 2))),
    ),
    (
        "keras.backend.ctc_batch_cost",
        lambda f: f(
            tf.constant([[1], [0]]),
            tf.nn.softmax(tf.transpose(LOGITS, (1, 0, 2))),
            [[4], [4]],
            [[1], [1]],
        ),
    ),
    (
        "keras.backend.ctc_decode",
        lambda f: f(tf.nn.softmax(tf.transpose(LOGITS, (1, 0, 2))), [4, 4]),
    ),
    ("keras.backend.ctc_label_dense_to_sparse", lambda f: f(INT, tf.constant([1, 2]))),
    ("keras.backend.local_conv1d", lambda f: f(LINE, tf.ones((4, 3, 2)), (1,), (1,))),
    ("keras.backend.local_conv2d", lambda f: f(IMAGE, tf.ones((16, 3, 2)), (1, 1), (1, 1), (4, 4))),
    ("keras.backend.one_hot", lambda f: f(INDEX, 2)),
    ("keras.backend.permute_dimensions", lambda f: f(FLOAT, (1, 0))),
    ("keras.backend.pool2d", lambda f: f(IMAGE, (2, 2))),
    ("keras.backend.pool3d", lambda f: f(VOLUME, (2, 2, 2))),
    ("keras.backend.repeat_elements", lambda f: f(FLOAT, 2, 0)),
    ("keras.backend.repeat", lambda f: f(FLOAT, 2)),
    ("keras.backend.resize_images", lambda f: f(IMAGE, 2, 2, "channels_last")),
    ("keras.backend.resize_volumes", lambda f: f(VOLUME, 2, 2, 2, "channels_last")),
    ("keras.backend.cast", lambda f: f(FLOAT, "float16")),
    (
        (
            "keras.backend.sparse_categorical_crossentropy "
            "keras.metrics.sparse_categorical_crossentropy "
            "keras.metrics.sparse_categorical_accuracy"
        ),
        lambda f: f(tf.constant([0, 1]), FLOAT),
    ),
    ("keras.metrics.sparse_top_k_categorical_accuracy", lambda f: f(tf.constant([0, 1]), FLOAT, 1)),
    ("linalg.band_part", lambda f: f(SQUARE, 1, 0)),
    ("linalg.logm", lambda f: f(tf.cast(SQUARE, tf.complex64))),
    ("linalg.lu_matrix_inverse linalg.lu_reconstruct", lambda f: f(*tf.linalg.lu(SQUARE))),
    ("linalg.lu_solve", lambda f: f(*tf.linalg.lu(SQUARE), SQUARE)),
    ("linalg.set_diag", lambda f: f(SQUARE, [1.0, 2.0])),
    (
        "linalg.tridiagonal_matmul linalg.tridiagonal_solve",
        lambda f: f(tf.constant([[1.0, 0.0], [2.0, 2.0], [0.0, 1.0]]), SQUARE),
    ),
    ("math.approx_max_k math.approx_min_k", lambda f: traced(lambda: f(FLOAT, 2))),
    ("approx_top_k", lambda f: traced(lambda: f(FLOAT, 2))),
    ("math.invert_permutation", lambda f: f([1, 0, 2])),
    ("math.sobol_sample", lambda f: f(2, 3)),
    ("math.unsorted_segment_sqrt_n", lambda f: f(FLOAT, [0, 1], 2)),
    ("nn.atrous_conv2d", lambda f: f(IMAGE, K2, 1, "SAME")),
    ("nn.atrous_conv2d_transpose", lambda f: f(BACK, K2, [1, 4, 4, 3], 1, "SAME")),
    ("nn.collapse_repeated", lambda f: f(INT, [3, 3])),
    ("nn.compute_accidental_hits", lambda f: f(WIDE[:, :1], tf.constant([0, 1], tf.int64), 1)),
    (
        "ragged.cross ragged.cross_hashed",
        lambda f: f([tf.ragged.constant([["a"], ["b"]]), tf.ragged.constant([["c"], ["d"]])]),
    ),
    ("random.experimental.stateless_fold_in random.fold_in", lambda f: f([1, 2], 3)),
    (
        (
            "random.learned_unigram_candidate_sampler random.log_uniform_candidate_sampler "
            "random.uniform_candidate_sampler"
        ),
        lambda f: f(WIDE[:, :1], 1, 2, True, 4),
    ),
    ("signal.frame", lambda f: f(WAVE, 8, 4)),
    (
        (
            "signal.hamming_window signal.hann_window signal.kaiser_bessel_derived_window "
            "signal.kaiser_window signal.vorbis_window"
        ),
        lambda f: f(8),
    ),
    ("signal.inverse_stft", lambda f: f(tf.ones((1, 3, 5), tf.complex64), 8, 4)),
    ("signal.mdct", lambda f: f(WAVE, 8)),
    ("signal.inverse_mdct", lambda f: f(tf.ones((1, 3, 4)))),
    ("signal.overlap_and_add", lambda f: f(FLOAT, 1)),
    ("signal.stft", lambda f: f(WAVE, 8, 4)),
)

RECIPES: Final = {name: call for names, call in _CALLS for name in names.split()}

PARAMETERS: Final[dict[str, Any]] = {
    **dict.fromkeys(("axis", "axes", "batch_dims", "dim"), 0),
    **dict.fromkeys(
        ("k", "num", "depth", "n", "rank", "diagonals", "num_segments", "block_size"), 2
    ),
    **dict.fromkeys(("dtype", "out_type"), tf.float32),
    "crops": [[0, 0], [0, 0]],
    "paddings": [[0, 0], [0, 0]],
    "clip_norm": 1.0,
    "padding": "SAME",
    "num_or_size_splits": 1,
    "seed": [1, 2],
    "size": [2, 2],
    "shape": [2, 3],
}
"""What stands for required arguments of these names, whatever the function."""
