/* examples/digest/digest_example.c - compare a matrix with its shards and its transpose by digests.
 *
 * Two "ranks" hold the left and the right half of the columns of one matrix. Their digests add up
 * to the digest of the whole, so the whole can be compared with a run that was not sharded, from
 * three numbers a rank. A swap of two elements, invisible to sums and norms, changes the digest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <tocsin/tensor.h>

#define ROWS    6
#define COLUMNS 10

static int digest(const tocsin_tensor_view *view, const char *name, tocsin_digest *result)
{
    tocsin_error error;
    tocsin_statistics statistics;
    if (tocsin_tensor_digest(view, result, &statistics, &error) != TOCSIN_OK) {
        fprintf(stderr, "%s: %s\n", name, error.message);
        return 1;
    }
    printf("%-12s P = %016" PRIx64 ", absmax %g, sum of squares %g\n", name, result->polynomial,
           statistics.absmax, statistics.sum_squares);
    return 0;
}

int main(void)
{
    float matrix[ROWS][COLUMNS];
    float transposed[COLUMNS][ROWS];
    for (int i = 0; i < ROWS; ++i) {
        for (int j = 0; j < COLUMNS; ++j)
            transposed[j][i] = matrix[i][j] = (float)(i * COLUMNS + j) / 8 - 3;
    }
    const int64_t shape[] = {ROWS, COLUMNS};
    tocsin_tensor_view view = {
        .data = matrix, .dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 2, .shape = shape};
    tocsin_digest whole;
    if (digest(&view, "whole", &whole))
        return 1;

    /* Column shards of 4 and 6 columns: views into the matrix, or tensors of their own. */
    const int64_t strides[] = {COLUMNS, 1};
    tocsin_digest sum = {0};
    for (int64_t start = 0, width = 4; start < COLUMNS; start += width, width = COLUMNS - start) {
        const int64_t shard_shape[] = {ROWS, width};
        const int64_t offset[] = {0, start};
        tocsin_tensor_view shard = {.data = &matrix[0][start],
                                    .dtype = TOCSIN_DTYPE_FLOAT32,
                                    .ndim = 2,
                                    .shape = shard_shape,
                                    .strides = strides,
                                    .global_shape = shape,
                                    .offset = offset};
        tocsin_digest part;
        if (digest(&shard, "shard", &part))
            return 1;
        sum = tocsin_digest_merge(sum, part);
    }
    int is_composed = sum.sum == whole.sum && sum.polynomial == whole.polynomial;
    printf("shards add up to the whole: %s\n", is_composed ? "yes" : "no");

    const int64_t transposed_strides[] = {1, ROWS};
    tocsin_tensor_view other = view;
    other.data = transposed;
    other.strides = transposed_strides;
    tocsin_digest turned;
    if (digest(&other, "transposed", &turned))
        return 1;
    int is_same = turned.polynomial == whole.polynomial;
    printf("transposed memory, same tensor: %s\n", is_same ? "equal" : "different");

    float kept = matrix[0][0];
    matrix[0][0] = matrix[5][9];
    matrix[5][9] = kept;
    tocsin_digest swapped;
    if (digest(&view, "swapped", &swapped))
        return 1;
    int is_seen = swapped.sum == whole.sum && swapped.polynomial != whole.polynomial;
    printf("two elements swapped: %s\n", is_seen ? "detected" : "missed");
    return !(is_composed && is_same && is_seen);
}
