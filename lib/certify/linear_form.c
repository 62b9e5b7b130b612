/* linear_form.c - indices as linear forms over coordinates, and their exact division.
 *
 * A quotient of a linear form is linear where no carry can happen. certify_divide proves that from
 * the ranges of the coordinates or says which coordinate to refine: split one whose weight divides
 * the divisor, so that one half of it is a multiple, or cut a range where the carry begins. Each
 * refinement makes a coordinate smaller, so refining ends. All arithmetic is checked.
 */
#include <assert.h>

#include "certify/certify.h"

certify_form certify_constant(int64_t value)
{
    return (certify_form){.base = value};
}

certify_form certify_coordinate(const certify_space *space, uint32_t coordinate)
{
    certify_form form = {0};
    assert(coordinate < space->count);
    if (space->size[coordinate] > 1) {
        form.count = 1;
        form.part[0].coordinate = coordinate;
        form.part[0].weight = 1;
    }
    return form;
}

bool certify_form_add(certify_form *to, const certify_form *form, int64_t weight)
{
    const certify_form left = *to;
    uint32_t i = 0, j = 0;
    int64_t value;

    if (__builtin_mul_overflow(form->base, weight, &value) ||
        __builtin_add_overflow(left.base, value, &value))
        return false;
    to->base = value;
    to->count = 0;
    while (i < left.count || j < form->count) {
        const bool from_left = j == form->count || (i < left.count && left.part[i].coordinate <=
                                                                          form->part[j].coordinate);
        const bool from_form = i == left.count || (j < form->count && form->part[j].coordinate <=
                                                                          left.part[i].coordinate);
        const uint32_t coordinate = from_left ? left.part[i].coordinate : form->part[j].coordinate;
        int64_t sum = from_left ? left.part[i].weight : 0;
        if (from_form && (__builtin_mul_overflow(form->part[j].weight, weight, &value) ||
                          __builtin_add_overflow(sum, value, &sum)))
            return false;
        i += from_left;
        j += from_form;
        if (sum == 0)
            continue;
        if (to->count == CERTIFY_PARTS_MAX)
            return false;
        to->part[to->count].coordinate = coordinate;
        to->part[to->count++].weight = sum;
    }
    return true;
}

int certify_form_compare(const certify_form *a, const certify_form *b)
{
    if (a->base != b->base)
        return a->base < b->base ? -1 : 1;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    for (uint32_t k = 0; k < a->count; k++) {
        if (a->part[k].coordinate != b->part[k].coordinate)
            return a->part[k].coordinate < b->part[k].coordinate ? -1 : 1;
        if (a->part[k].weight != b->part[k].weight)
            return a->part[k].weight < b->part[k].weight ? -1 : 1;
    }
    return 0;
}

bool certify_form_range(const certify_space *space, const certify_form *form, int64_t *least,
                        int64_t *most)
{
    *least = *most = form->base;
    for (uint32_t k = 0; k < form->count; k++) {
        int64_t reach;
        assert(form->part[k].coordinate < space->count);
        int64_t *end = form->part[k].weight > 0 ? most : least;
        if (__builtin_mul_overflow(form->part[k].weight, space->size[form->part[k].coordinate] - 1,
                                   &reach) ||
            __builtin_add_overflow(*end, reach, end))
            return false;
    }
    return true;
}

bool certify_substitute(certify_form *form, uint32_t coordinate, const certify_form *with)
{
    for (uint32_t k = 0; k < form->count; k++) {
        if (form->part[k].coordinate != coordinate)
            continue;
        const int64_t weight = form->part[k].weight;
        form->count--;
        for (uint32_t m = k; m < form->count; m++)
            form->part[m] = form->part[m + 1];
        return certify_form_add(form, with, weight);
    }
    return true;
}

static int64_t floor_quotient(int64_t a, int64_t b)
{
    const int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static certify_outcome cut_at(certify_refinement *refinement, uint32_t coordinate, int64_t size,
                              int64_t value)
{
    refinement->coordinate = coordinate;
    refinement->cut = true;
    refinement->value = value < 1 ? 1 : value > size - 1 ? size - 1 : value;
    return CERTIFY_REFINE;
}

/* Cut the coordinate that contributes most to `form`, near where the form reaches the boundary. */
static certify_outcome cut_near(const certify_space *space, const certify_form *form,
                                int64_t boundary, certify_refinement *refinement)
{
    uint32_t best = 0;
    for (uint32_t k = 1; k < form->count; k++)
        if (form->part[k].weight > form->part[best].weight)
            best = k;
    if (form->count == 0 || form->part[best].weight <= 0)
        return CERTIFY_UNCLEAR;
    int64_t distance;
    if (__builtin_sub_overflow(boundary, form->base, &distance))
        return CERTIFY_UNCLEAR;
    const int64_t weight = form->part[best].weight;
    int64_t value = floor_quotient(distance, weight);
    if (distance % weight != 0 && value < 1)
        value = 1; /* the first one reaches over it by what the others add */
    const uint32_t coordinate = form->part[best].coordinate;
    return cut_at(refinement, coordinate, space->size[coordinate], value);
}

certify_outcome certify_side(const certify_space *space, const certify_form *form, int64_t boundary,
                             bool *below, certify_refinement *refinement)
{
    int64_t least, most;
    if (!certify_form_range(space, form, &least, &most))
        return CERTIFY_UNCLEAR;
    *below = most < boundary;
    if (most < boundary || least >= boundary)
        return CERTIFY_DONE;
    return cut_near(space, form, boundary, refinement);
}

/* The rest is not within [0, divisor) everywhere: which coordinate is to be refined? */
static certify_outcome refine_rest(const certify_space *space, const certify_form *rest,
                                   int64_t divisor, certify_refinement *refinement)
{
    for (uint32_t k = 0; k < rest->count; k++) {
        const uint32_t coordinate = rest->part[k].coordinate;
        const int64_t weight = rest->part[k].weight, size = space->size[coordinate];
        if (weight <= 0)
            return CERTIFY_UNCLEAR;
        if (divisor % weight != 0 || size <= divisor / weight)
            continue;
        const int64_t radix = divisor / weight;
        if (size % radix != 0)
            return cut_at(refinement, coordinate, size, size - size % radix);
        *refinement = (certify_refinement){.coordinate = coordinate, .value = radix};
        return CERTIFY_REFINE;
    }
    return cut_near(space, rest, divisor, refinement);
}

certify_outcome certify_divide(const certify_space *space, const certify_form *form,
                               int64_t divisor, certify_form *quotient, certify_form *rest,
                               certify_refinement *refinement)
{
    int64_t least, most;
    assert(divisor >= 1);
    *quotient = certify_constant(floor_quotient(form->base, divisor));
    *rest = certify_constant(form->base - quotient->base * divisor);
    for (uint32_t k = 0; k < form->count; k++) {
        const int64_t weight = form->part[k].weight;
        certify_form *to = weight % divisor == 0 ? quotient : rest;
        to->part[to->count].coordinate = form->part[k].coordinate;
        to->part[to->count++].weight = to == quotient ? weight / divisor : weight;
    }
    if (!certify_form_range(space, rest, &least, &most))
        return CERTIFY_UNCLEAR;
    if (least >= 0 && most < divisor)
        return CERTIFY_DONE;
    return refine_rest(space, rest, divisor, refinement);
}
