/* Rotations and the like that engines carry out as they run, as the config.json of a source says or
 * tensors beside its weights; see source_transforms.h. What was multiplied into weights alone says
 * nothing of the inputs, and is no obstacle.
 *
 * Invariant: each key and name is one that a published tool writes and an engine reads, named here.
 */
#include "pack/source/source_transforms.h"

#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

static const char CONVERT_ANOTHER[] = "serve it as it is, or convert the model that it was made "
                                      "from";

/* "location" of compressed-tensors (transform/transform_args.py, TransformLocation.is_online()):
 * vLLM transforms what is at any other one. */
static bool in_weights(const json_t *args)
{
    const char *at = json_string_value(json_object_get(args, "location"));
    return at && (strcmp(at, "weight_input") == 0 || strcmp(at, "weight_output") == 0);
}

/* transform_config of compressed-tensors: schemes, and where each is applied. */
static bool is_carried_out(const json_t *config)
{
    json_t *schemes = json_object_get(config, "config_groups"), *scheme, *apply, *args;
    const char *name;
    size_t i;
    if (!json_is_object(schemes))
        return true; /* not what its engines read */
    json_object_foreach(schemes, name, scheme) {
        apply = json_object_get(scheme, "apply");
        if (!json_is_object(scheme) || (apply && !json_is_array(apply)))
            return true;
        json_array_foreach(apply, i, args)
            if (!in_weights(args))
                return true;
    }
    return false;
}

static bool says_nothing(const json_t *value)
{
    const char *text = json_string_value(value);
    return !value || json_is_null(value) || (text && !*text) || json_is_false(value) ||
           (json_is_integer(value) && json_integer_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* The key that says so, or NULL. */
static const char *transform_of(const json_t *config)
{
    const json_t *schemes = json_object_get(config, "transform_config");
    if (!says_nothing(schemes) && is_carried_out(schemes))
        return "transform_config";
    /* AutoRound; its layers rotate their inputs, and so does vLLM for it */
    if (!says_nothing(json_object_get(config, "rotation_config")))
        return "rotation_config";
    /* GPTQModel; the inputs of down_proj are rotated */
    return says_nothing(json_object_get(config, "rotation")) ? NULL : "rotation";
}

enum tp_code tp_source_transforms_check(const struct tp_checkpoint *ckpt, struct tp_err *err)
{
    json_t *config;
    enum tp_code code = tp_source_config(ckpt, &config, err);
    const char *key = transform_of(config);
    if (key) {
        tp_source_config_path(ckpt, err);
        tp_err_hint(err, CONVERT_ANOTHER);
        code = tp_fail(err, TP_E_UNSUPPORTED, "its quantization_config says \"%s\": engines "
                       "transform the inputs of layers as they run, and the weights are made for "
                       "that, which no format here can say", key);
    }
    json_decref(config);
    return code;
}

static enum tp_code refuse_beside(const struct tp_checkpoint *ckpt,
                                  const struct tp_weight *weight, const struct tp_tensor *beside,
                                  struct tp_err *err)
{
    tp_err_tensor(err, weight->name);
    tp_err_path(err, ckpt->files[beside->file].path);
    tp_err_hint(err, CONVERT_ANOTHER);
    return tp_fail(err, TP_E_UNSUPPORTED, "%s stands beside it: engines compute with it as they "
                   "run, and the weight is made for that, which no format here can say",
                   beside->name);
}

/* Refuses the weight where the checkpoint has that tensor, of this rank (0: of any). */
static enum tp_code look_for(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                             const char *module, size_t size, const char *what, uint32_t rank,
                             struct tp_err *err)
{
    char *name = tp_os_join(err, module, size, what);
    const struct tp_tensor *beside = name ? tp_checkpoint_find(ckpt, name) : NULL;
    free(name);
    if (!name)
        return TP_E_MEMORY;
    return beside && (!rank || beside->rank == rank) ? refuse_beside(ckpt, weight, beside, err)
                                                     : TP_OK;
}

/* Length of what the name of a module ("a.b.", with its dot) shares with those beside it: "a.". */
static size_t beside_size(const char *module)
{
    size_t size = strlen(module);
    while (size && module[size - 1] == '.')
        size--;
    while (size && module[size - 1] != '.')
        size--;
    return size;
}

enum tp_code tp_source_beside_check(const struct tp_checkpoint *ckpt,
                                    const struct tp_weight *weight, struct tp_err *err)
{
    /* ModelOpt's AWQ divides columns by the one, and SVDQuant takes the product of the others out;
     * AutoRound and FP-Quant rotate columns */
    static const char *const names[] = {"pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b",
                                        "hadamard_matrix", "forward_hadamard_matrix"};
    /* AutoAWQ's ScaledActivation divides what an activation hands to the next matrix, whose columns
     * are multiplied by it; those of a packed weight of that name would be no vector */
    static const char *const activations[] = {"act.scales", "gelu_impl.scales"};
    char *prefix = tp_weight_prefix(weight, err);
    enum tp_code code = prefix ? TP_OK : TP_E_MEMORY;
    for (size_t i = 0; i < sizeof names / sizeof *names && code == TP_OK; i++)
        code = look_for(ckpt, weight, prefix, strlen(prefix), names[i], 0, err);
    for (size_t i = 0; i < sizeof activations / sizeof *activations && code == TP_OK; i++)
        code = look_for(ckpt, weight, prefix, beside_size(prefix), activations[i], 1, err);
    free(prefix);
    return code;
}
