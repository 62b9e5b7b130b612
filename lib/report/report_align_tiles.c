/* report_align_tiles.c - of a pivot the rows that differ. */
#include "report/report_align.h"

#include <inttypes.h>

#define RANGES   12
#define ELEMENTS 4

/* Neighbouring tiles as one range: returns the next tile. */
static size_t append_range(tocsin_string *out, const tocsin_align_pivot *pivot, size_t at)
{
    size_t end = at + 1;
    while (end < pivot->tile_count &&
           pivot->tiles[end].first == pivot->tiles[end - 1].first + pivot->tiles[end - 1].rows)
        ++end;
    int64_t first = pivot->tiles[at].first;
    int64_t last = pivot->tiles[end - 1].first + pivot->tiles[end - 1].rows - 1;
    tocsin_string_printf(out, "%" PRId64, first);
    if (last > first)
        tocsin_string_printf(out, "-%" PRId64, last);
    return end;
}

static void append_index(tocsin_string *out, const tocsin_align_pivot *pivot,
                         const tocsin_align_tile *tile)
{
    tocsin_string_append_text(out, "    in it     [");
    for (uint32_t axis = 0; axis < pivot->shape_ndim; ++axis)
        tocsin_string_printf(out, "%s%" PRId64, axis ? "," : "", tile->index[axis]);
    tocsin_string_append_text(out, "] alone of its rows\n");
}

void tocsin_report_text_tiles(tocsin_string *out, const tocsin_align_pivot *pivot)
{
    if (pivot->tile_count == 0)
        return;
    const tocsin_align_tile *first = &pivot->tiles[0];
    tocsin_string_append_text(out, "    rows      ");
    size_t ranges = 0;
    for (size_t t = 0; t < pivot->tile_count && ranges < RANGES; ++ranges) {
        tocsin_string_append_text(out, ranges ? ", " : "");
        t = append_range(out, pivot, t);
        if (t < pivot->tile_count && ranges + 1 == RANGES)
            tocsin_string_append_text(out, ", ...");
    }
    tocsin_string_printf(out, " of %" PRId64, pivot->shape[first->axis]);
    if (first->axis > 0)
        tocsin_string_printf(out, " (axis %" PRIu32 ")", first->axis);
    tocsin_string_printf(out, ": %zu of %zu %s\n", pivot->tile_count, pivot->tiles_compared,
                         first->rows > 1 ? "tiles" : "differ");
    size_t shown = 0;
    for (size_t t = 0; !pivot->located && t < pivot->tile_count && shown < ELEMENTS; ++t) {
        if (pivot->tiles[t].located) {
            append_index(out, pivot, &pivot->tiles[t]);
            ++shown;
        }
    }
}

static void write_list(tocsin_json *json, const char *key, const tocsin_align_pivot *pivot,
                       const tocsin_align_tile *tile, bool shape)
{
    tocsin_json_key(json, key);
    tocsin_json_begin_array(json);
    for (uint32_t axis = 0; axis < pivot->shape_ndim; ++axis) {
        int64_t elsewhere = shape ? pivot->shape[axis] : 0;
        int64_t here = shape ? tile->rows : tile->first;
        tocsin_json_integer(json, axis == tile->axis ? here : elsewhere);
    }
    tocsin_json_end_array(json);
}

static void write_element(tocsin_json *json, const tocsin_align_pivot *pivot,
                          const tocsin_align_tile *tile)
{
    tocsin_json_begin_object(json);
    tocsin_json_key(json, "index");
    tocsin_json_begin_array(json);
    for (uint32_t axis = 0; axis < pivot->shape_ndim; ++axis)
        tocsin_json_integer(json, tile->index[axis]);
    tocsin_json_end_array(json);
    tocsin_json_put_unsigned(json, "word", tile->word);
    tocsin_json_key(json, "delta");
    tocsin_json_integer(json, tile->change.delta);
    tocsin_json_end_object(json);
}

void tocsin_report_json_tiles(tocsin_json *json, const tocsin_align_pivot *pivot)
{
    tocsin_json_put_unsigned(json, "tiles_compared", pivot->tiles_compared);
    tocsin_json_key(json, "tiles");
    tocsin_json_begin_array(json);
    for (size_t t = 0; t < pivot->tile_count; ++t) {
        const tocsin_align_tile *tile = &pivot->tiles[t];
        tocsin_json_begin_object(json);
        write_list(json, "offset", pivot, tile, false);
        write_list(json, "shape", pivot, tile, true);
        tocsin_json_key(json, "elements");
        tocsin_json_begin_array(json);
        if (tile->located)
            write_element(json, pivot, tile);
        tocsin_json_end_array(json);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
}
