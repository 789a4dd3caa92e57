// Convolutions whose weights are a list of active entries. Activations lie as [channel][row][column][sample], so that
// neighbouring samples fill a vector; the number of samples is a multiple of the vector's length. Inputs are packed with
// a border of zeros first: no tile has to look where the image ends, and channels do not lie a power of two apart, where
// they would drive one another out of the cache. Compiled once for each instruction set (VECTOR_BYTES), used by ctypes.

#include <cmath>
#include <cstdint>
#include <cstring>

#ifndef VECTOR_BYTES
#define VECTOR_BYTES 16
#endif

namespace {

constexpr int tile_size = VECTOR_BYTES == 64 ? 16 : 8;  // vectors of a row that are held in registers

template <typename Real>
struct Vectors {
    typedef Real type __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real)), may_alias));
    static constexpr int length = VECTOR_BYTES / sizeof(Real);
};

struct Entry {
    int32_t position;  // of the weight among the layer's active ones
    uint16_t channel;  // of the input
    uint8_t row, column;  // within the kernel
};

struct Shape {
    int32_t inputs, height, width;
    int32_t outputs, out_height, out_width;
    int32_t kernel_height, kernel_width, stride, padding;
    int32_t vectors;  // samples, in vectors
    int32_t blocks;  // of input channels: entries are sorted by block, then by output channel
};

// The packed input. Of a kernel of one place only the pixels that it sees are packed.
struct Packed {
    int step, stride;  // between the pixels that are packed, and between the packed ones that neighbouring outputs see
    int height, width;
    int64_t line, plane;  // in vectors

    explicit Packed(const Shape& shape) {
        const bool point = shape.kernel_height == 1 && shape.padding == 0 && shape.stride > 1;
        step = point ? shape.stride : 1;
        stride = point ? 1 : shape.stride;
        height = point ? shape.out_height : shape.height + 2 * shape.padding;
        width = point ? shape.out_width : shape.width + 2 * shape.padding;
        line = int64_t(width) * shape.vectors;
        plane = (height * line) | 1;
    }
};

template <typename Vector>
void pack(const Shape& shape, const Packed& packed, const Vector* from, Vector* to) {
    const int border = shape.padding, lanes = shape.vectors;
    const int64_t line = int64_t(shape.width) * lanes;
    if (lanes == 0) return;  // no samples: there may be no memory either
    for (int c = 0; c < shape.inputs; ++c)
        for (int y = 0; y < packed.height; ++y) {
            Vector* target = to + c * packed.plane + y * packed.line;
            const int row = y * packed.step - border;
            if (row < 0 || row >= shape.height) {
                std::memset(target, 0, packed.line * sizeof(Vector));
                continue;
            }
            const Vector* source = from + (int64_t(c) * shape.height + row) * line;
            if (packed.step > 1) {
                for (int x = 0; x < packed.width; ++x)
                    std::memcpy(target + x * lanes, source + int64_t(x) * packed.step * lanes, lanes * sizeof(Vector));
                continue;
            }
            std::memset(target, 0, border * lanes * sizeof(Vector));
            std::memcpy(target + border * lanes, source, line * sizeof(Vector));
            std::memset(target + border * lanes + line, 0, border * lanes * sizeof(Vector));
        }
}

// The vectors of a row that one pass holds in registers: where each of them finds its input.
struct Tile {
    int first;
    int offsets[tile_size];
};

Tile make_tile(const Shape& shape, const Packed& packed, int first, int count) {
    Tile tile;
    tile.first = first;
    for (int k = 0; k < count; ++k)
        tile.offsets[k] = (first + k) / shape.vectors * packed.stride * shape.vectors + (first + k) % shape.vectors;
    return tile;
}

template <typename Real, int count, bool dense>
void forward_tile(const Shape& shape, const Packed& packed, const Tile& tile, int row, const int32_t* starts,
                  const Entry* entries, const Real* values, const Real* input, Real* output) {
    typedef typename Vectors<Real>::type Vector;
    const Vector zero = {};
    const Vector* in = reinterpret_cast<const Vector*>(input) + row * packed.stride * packed.line + (dense ? tile.first : 0);
    Vector* out = reinterpret_cast<Vector*>(output) + int64_t(row) * shape.out_width * shape.vectors + tile.first;
    const int64_t out_plane = int64_t(shape.out_height) * shape.out_width * shape.vectors;
    for (int block = 0; block < shape.blocks; ++block)
        for (int o = 0; o < shape.outputs; ++o) {
            const int begin = starts[block * shape.outputs + o], end = starts[block * shape.outputs + o + 1];
            if (begin == end && block > 0) continue;
            Vector* target = out + o * out_plane;
            Vector sum[count];
#pragma GCC unroll 16
            for (int k = 0; k < count; ++k) sum[k] = block ? target[k] : zero;
            for (int e = begin; e < end; ++e) {
                const Entry entry = entries[e];
                const Vector weight = zero + values[entry.position];
                const Vector* source =
                    in + entry.channel * packed.plane + entry.row * packed.line + entry.column * shape.vectors;
#pragma GCC unroll 16
                for (int k = 0; k < count; ++k) sum[k] += weight * source[dense ? k : tile.offsets[k]];
            }
#pragma GCC unroll 16
            for (int k = 0; k < count; ++k) target[k] = sum[k];
        }
}

// Add a vector's numbers up, in halves.
template <typename Real, int bytes>
Real total(const void* vector) {
    if constexpr (bytes == sizeof(Real)) {
        Real value;
        std::memcpy(&value, vector, sizeof(Real));
        return value;
    } else {
        typedef Real Half __attribute__((vector_size(bytes / 2), aligned(sizeof(Real)), may_alias));
        const Half* halves = reinterpret_cast<const Half*>(vector);
        const Half sum = halves[0] + halves[1];
        return total<Real, bytes / 2>(&sum);
    }
}

template <typename Real, int count, bool dense>
void weights_tile(const Shape& shape, const Packed& packed, const Tile& tile, int row, const int32_t* starts,
                  const Entry* entries, const Real* input, const Real* gradient, Real* value_gradient) {
    typedef typename Vectors<Real>::type Vector;
    const Vector zero = {};
    const Vector* in = reinterpret_cast<const Vector*>(input) + row * packed.stride * packed.line + (dense ? tile.first : 0);
    const Vector* out =
        reinterpret_cast<const Vector*>(gradient) + int64_t(row) * shape.out_width * shape.vectors + tile.first;
    const int64_t out_plane = int64_t(shape.out_height) * shape.out_width * shape.vectors;
    for (int block = 0; block < shape.blocks; ++block)
        for (int o = 0; o < shape.outputs; ++o) {
            const int begin = starts[block * shape.outputs + o], end = starts[block * shape.outputs + o + 1];
            if (begin == end) continue;
            const Vector* from = out + o * out_plane;
            Vector g[count];
#pragma GCC unroll 16
            for (int k = 0; k < count; ++k) g[k] = from[k];
            for (int e = begin; e < end; ++e) {
                const Entry entry = entries[e];
                const Vector* source =
                    in + entry.channel * packed.plane + entry.row * packed.line + entry.column * shape.vectors;
                Vector sums[4] = {zero, zero, zero, zero};
#pragma GCC unroll 16
                for (int k = 0; k < count; ++k) sums[k & 3] += g[k] * source[dense ? k : tile.offsets[k]];
                const Vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
                value_gradient[entry.position] += total<Real, VECTOR_BYTES>(&sum);
            }
        }
}

template <typename Real, int count>
int forward_tiles(const Shape& shape, const Packed& packed, int row, int first, int last, const int32_t* starts,
                  const Entry* entries, const Real* values, const Real* input, Real* output) {
    for (; first + count <= last; first += count)
        (packed.stride == 1 ? forward_tile<Real, count, true> : forward_tile<Real, count, false>)(
            shape, packed, make_tile(shape, packed, first, count), row, starts, entries, values, input, output);
    return first;
}

template <typename Real>
void forward(const Shape& shape, const int32_t* starts, const Entry* entries, const Real* values, const Real* input,
             Real* scratch, Real* output) {
    typedef typename Vectors<Real>::type Vector;
    const Packed packed(shape);
    pack(shape, packed, reinterpret_cast<const Vector*>(input), reinterpret_cast<Vector*>(scratch));
    const int last = shape.out_width * shape.vectors;
    for (int row = 0; row < shape.out_height; ++row) {
        int first = 0;
        first = forward_tiles<Real, tile_size>(shape, packed, row, first, last, starts, entries, values, scratch, output);
        if (tile_size > 8)
            first = forward_tiles<Real, 8>(shape, packed, row, first, last, starts, entries, values, scratch, output);
        first = forward_tiles<Real, 4>(shape, packed, row, first, last, starts, entries, values, scratch, output);
        forward_tiles<Real, 1>(shape, packed, row, first, last, starts, entries, values, scratch, output);
    }
}

template <typename Real, int count>
int weights_tiles(const Shape& shape, const Packed& packed, int row, int first, int last, const int32_t* starts,
                  const Entry* entries, const Real* input, const Real* gradient, Real* value_gradient) {
    for (; first + count <= last; first += count)
        (packed.stride == 1 ? weights_tile<Real, count, true> : weights_tile<Real, count, false>)(
            shape, packed, make_tile(shape, packed, first, count), row, starts, entries, input, gradient, value_gradient);
    return first;
}

template <typename Real>
void weights(const Shape& shape, const int32_t* starts, const Entry* entries, const Real* input, const Real* gradient,
             Real* scratch, Real* value_gradient) {
    typedef typename Vectors<Real>::type Vector;
    const Packed packed(shape);
    pack(shape, packed, reinterpret_cast<const Vector*>(input), reinterpret_cast<Vector*>(scratch));
    const int last = shape.out_width * shape.vectors;
    for (int row = 0; row < shape.out_height; ++row) {
        int first = 0;
        first = weights_tiles<Real, tile_size>(shape, packed, row, first, last, starts, entries, scratch, gradient,
                                               value_gradient);
        if (tile_size > 8)
            first = weights_tiles<Real, 8>(shape, packed, row, first, last, starts, entries, scratch, gradient,
                                           value_gradient);
        first = weights_tiles<Real, 4>(shape, packed, row, first, last, starts, entries, scratch, gradient,
                                       value_gradient);
        weights_tiles<Real, 1>(shape, packed, row, first, last, starts, entries, scratch, gradient, value_gradient);
    }
}

// Sums over a stretch of numbers, of two quantities at once.
template <typename Real, typename Terms>
void sums(int64_t length, Real* found, Terms terms) {
    typedef typename Vectors<Real>::type Vector;
    constexpr int lanes = Vectors<Real>::length;
    const Vector zero = {};
    Vector parts[2][4] = {{zero, zero, zero, zero}, {zero, zero, zero, zero}};
    const int64_t whole = length / (4 * lanes) * 4 * lanes;
    for (int64_t k = 0; k < whole; k += 4 * lanes)
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) {
            const auto pair = terms.template at<Vector>(k + part * lanes);
            parts[0][part] += pair.first;
            parts[1][part] += pair.second;
        }
    for (int which = 0; which < 2; ++which) {
        const Vector sum = (parts[which][0] + parts[which][1]) + (parts[which][2] + parts[which][3]);
        found[which] = total<Real, VECTOR_BYTES>(&sum);
    }
    for (int64_t k = whole; k < length; ++k) {
        const auto pair = terms.template at<Real>(k);
        found[0] += pair.first;
        found[1] += pair.second;
    }
}

template <typename Value>
struct Pair {
    Value first, second;
};

// x and (x - centre)^2: in a second pass, so that no digits cancel.
template <typename Real>
struct Spread {
    const Real* x;
    Real centre;
    template <typename Value>
    Pair<Value> at(int64_t k) const {
        const Value apart = *reinterpret_cast<const Value*>(x + k) - centre;
        return {apart, apart * apart};
    }
};

// The gradient g, and g times the normalised x.
template <typename Real>
struct Slopes {
    const Real *x, *g;
    Real mean, scale;
    template <typename Value>
    Pair<Value> at(int64_t k) const {
        const Value slope = *reinterpret_cast<const Value*>(g + k);
        return {slope, slope * ((*reinterpret_cast<const Value*>(x + k) - mean) * scale)};
    }
};

template <typename Real>
void normalise(int32_t channels, int64_t length, Real epsilon, const Real* x, const Real* weight, const Real* bias,
               Real* out, Real* means, Real* scales) {
    for (int c = 0; c < channels; ++c, x += length, out += length) {
        Real found[2];
        sums(length, found, Spread<Real>{x, Real(0)});
        const Real mean = found[0] / length;
        sums(length, found, Spread<Real>{x, mean});
        const Real scale = 1 / std::sqrt(found[1] / length + epsilon);
        const Real gain = weight[c] * scale, shift = bias[c];
        for (int64_t k = 0; k < length; ++k) out[k] = (x[k] - mean) * gain + shift;
        means[c] = mean;
        scales[c] = scale;
    }
}

template <typename Real>
void normalise_back(int32_t channels, int64_t length, const Real* x, const Real* g, const Real* weight,
                    const Real* means, const Real* scales, Real* down, Real* of_weight, Real* of_bias) {
    for (int c = 0; c < channels; ++c, x += length, g += length, down += length) {
        Real found[2];
        const Real mean = means[c], scale = scales[c];
        sums(length, found, Slopes<Real>{x, g, mean, scale});
        of_bias[c] = found[0];
        of_weight[c] = found[1];
        const Real gain = weight[c] * scale, slope = -gain * scale * found[1] / length;
        const Real shift = -gain * found[0] / length;
        for (int64_t k = 0; k < length; ++k) down[k] = g[k] * gain + ((x[k] - mean) * slope + shift);
    }
}

}  // namespace

extern "C" {

// Changed with every change of what these functions take; a library of another time is not used.
int32_t framp_interface() { return 1; }

int32_t framp_vector_bytes() { return VECTOR_BYTES; }

// Bytes of scratch memory of a pass.
int64_t framp_scratch_bytes(const Shape* shape) { return Packed(*shape).plane * shape->inputs * VECTOR_BYTES; }

// Sort active places of a weight [outputs, inputs, kernel_height, kernel_width] into blocks; `positions` tells where their
// values are (null: in this order). For the gradient of the input (turned) the convolution leads from outputs to inputs,
// with the kernel turned around: `shape` is its own, and the places are those of [inputs, outputs, ...].
void framp_lists(const Shape* shape, const int32_t* places, const int32_t* positions, int64_t count, int32_t turned,
                 int32_t* starts, Entry* entries) {
    const int width = shape->kernel_width, window = shape->kernel_height * width;
    const int block_size = (shape->inputs + shape->blocks - 1) / shape->blocks;
    const int64_t lists = int64_t(shape->blocks) * shape->outputs;
    std::memset(starts, 0, sizeof(int32_t) * (lists + 1));
    for (int turn = 0; turn < 2; ++turn) {  // count, then place
        for (int64_t p = 0; p < count; ++p) {
            int kernel = places[p] % window;
            const int pair = places[p] / window, inner = turned ? shape->outputs : shape->inputs;
            const int channel = turned ? pair / inner : pair % inner, output = turned ? pair % inner : pair / inner;
            if (turned) kernel = window - 1 - kernel;
            int32_t& start = starts[int64_t(channel / block_size) * shape->outputs + output];
            if (turn == 0)
                ++start;
            else
                entries[start++] = {positions ? positions[p] : int32_t(p), uint16_t(channel), uint8_t(kernel / width), uint8_t(kernel % width)};
        }
        if (turn == 0) {
            int32_t before = 0;
            for (int64_t k = 0; k <= lists; ++k) {
                const int32_t own = starts[k];
                starts[k] = before;
                before += own;
            }
        } else {  // placing has moved each start to the next one's
            for (int64_t k = lists; k > 0; --k) starts[k] = starts[k - 1];
            starts[0] = 0;
        }
    }
}

#define BOTH(Real, suffix)                                                                                            \
    void framp_forward_##suffix(const Shape* shape, const int32_t* starts, const Entry* entries, const Real* values,  \
                                const Real* input, Real* scratch, Real* output) {                                     \
        forward<Real>(*shape, starts, entries, values, input, scratch, output);                                       \
    }                                                                                                                 \
    void framp_weights_##suffix(const Shape* shape, const int32_t* starts, const Entry* entries, const Real* input,   \
                                const Real* gradient, Real* scratch, Real* value_gradient) {                          \
        weights<Real>(*shape, starts, entries, input, gradient, scratch, value_gradient);                             \
    }                                                                                                                 \
    void framp_normalise_##suffix(int32_t channels, int64_t length, double epsilon, const Real* x, const Real* weight, \
                                  const Real* bias, Real* out, Real* means, Real* scales) {                           \
        normalise<Real>(channels, length, epsilon, x, weight, bias, out, means, scales);                              \
    }                                                                                                                 \
    void framp_normalise_back_##suffix(int32_t channels, int64_t length, const Real* x, const Real* g,                \
                                       const Real* weight, const Real* means, const Real* scales, Real* down,         \
                                       Real* of_weight, Real* of_bias) {                                              \
        normalise_back<Real>(channels, length, x, g, weight, means, scales, down, of_weight, of_bias);                \
    }
BOTH(float, float32)
BOTH(double, float64)
#undef BOTH
}
