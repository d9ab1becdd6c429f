/* What Motion.java calls. */
#include "../motion.h"

#include <jni.h>

JNIEXPORT jint JNICALL Java_Motion_run(JNIEnv *java, jclass class, jobjectArray arguments)
{
	jsize count = (*java)->GetArrayLength(java, arguments);
	char **words = calloc(count + 2, sizeof(*words));

	(void)class;
	CHECK(words);
	words[0] = "Motion";
	for (jsize i = 0; i < count; i++) {
		jstring word = (*java)->GetObjectArrayElement(java, arguments, i);
		const char *text = (*java)->GetStringUTFChars(java, word, NULL);

		CHECK(text);
		words[i + 1] = strdup(text);
		(*java)->ReleaseStringUTFChars(java, word, text);
	}
	return motion_main(count + 1, words);
}
